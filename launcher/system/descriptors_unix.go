//go:build unix

package system

import (
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns the maximum number of files that this process may have open; 0 if unknown.
func Descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
