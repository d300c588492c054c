//go:build !linux

package system

// addressSpace returns the limit on this process's address space in bytes. On this system it always
// returns 0: none.
func addressSpace() int64 { return 0 }
