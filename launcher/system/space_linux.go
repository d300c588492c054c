package system

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strings"

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

// inMemory are file systems that hold no files, or lose them with the machine.
var inMemory = []string{"tmpfs", "ramfs", "devtmpfs", "proc", "sysfs", "cgroup", "cgroup2", "overlay", "squashfs"}

// RoomElsewhere returns the mounted file system with the most free space that this user can write
// to, other than that of folder, if it has at least need bytes.
func RoomElsewhere(folder string, need int64) (path string, free int64) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", 0
	}
	defer mounts.Close()
	var here unix.Stat_t
	unix.Stat(folder, &here)
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || slices.Contains(inMemory, fields[2]) {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[1])
		var there unix.Stat_t
		if unix.Stat(at, &there) != nil || there.Dev == here.Dev || there.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Access(at, unix.W_OK) != nil {
			continue
		}
		if space, ok := freeSpace(at); ok && space >= need && space > free {
			path, free = at, space
		}
	}
	return path, free
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
