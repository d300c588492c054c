//go:build !amd64 || purego

package cpu

// detect returns no features, because this build has no assembly.
func detect() Features { return Features{} }
