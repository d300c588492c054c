//go:build !linux

package pages

// Advise does nothing here.
func Advise([]byte) {}
