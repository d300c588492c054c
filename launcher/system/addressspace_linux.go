package system

import "golang.org/x/sys/unix"

// addressSpace returns the limit on this process's address space in bytes; 0: none.
func addressSpace() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &l) != nil || l.Cur > 1<<62 {
		return 0
	}
	return int64(l.Cur)
}
