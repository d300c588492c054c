//go:build !amd64 || purego

package cpu

func available() []Tier { return []Tier{Generic} }
