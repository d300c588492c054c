package system

import "golang.org/x/sys/unix"

func freeSpace(folder string) (free int64, ok bool) {
	var s unix.Statfs_t
	// Some virtual file systems report no blocks at all.
	if err := unix.Statfs(folder, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
