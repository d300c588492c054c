package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dropCache makes the kernel forget what it holds of the files in a folder.
func dropCache(b *testing.B, path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(path, e.Name()))
		if err != nil {
			b.Fatal(err)
		}
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
		if err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is what this process has used, the kernel's work for it included.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
