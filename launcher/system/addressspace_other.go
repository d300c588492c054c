//go:build !linux

package system

// addressSpace returns the limit on this process's address space in bytes. On this system it always
// returns 0: none.
func addressSpace() int64 { return 0 }

// CheckThreads returns an error if a job may not have the threads that it needs. On this system it
// does not know the limit.
func CheckThreads(int) error { return nil }
