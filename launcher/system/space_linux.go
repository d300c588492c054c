package system

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func freeSpace(folder string) (free int64, ok bool) {
	var s unix.Statfs_t
	// Some virtual file systems report no blocks at all.
	if err := unix.Statfs(folder, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}

// Freed returns the bytes that deleting a file gives back to its disk: none if it has other names
// or is open elsewhere, where the kernel refuses a lease.
func Freed(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close() // ends the lease
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil || s.Nlink > 1 {
		return 0
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); errors.Is(err, unix.EAGAIN) {
		return 0
	}
	const unit = 512 // of Blocks
	return s.Blocks * unit
}
