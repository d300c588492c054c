//go:build !linux

package pages

// Advise does nothing on this system.
func Advise([]byte) {}

// Release does nothing on this system.
func Release([]byte) {}
