package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// diskFile is a file on a disk.
type diskFile struct{ *os.File }

// Reserve implements [Output]. A file system that cannot do so reserves nothing.
func (f diskFile) Reserve(size int64) {
	unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(1, size))
}
