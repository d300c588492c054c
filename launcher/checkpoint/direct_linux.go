package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// diskFile is a file whose large writes bypass the page cache. A checkpoint is not read soon, and
// copying it into the cache takes processor time from the training that continues meanwhile.
type diskFile struct {
	*os.File
	at      int64 // offset of the next write
	direct  bool
	refused bool // by the file system, which then gets plain writes
}

// Write implements [Output]. If memory and position are aligned, the whole multiples of
// directAlignment at the start of p bypass the cache. The rest is a plain write.
func (f *diskFile) Write(p []byte) (n int, err error) {
	if whole := len(p) &^ (directAlignment - 1); whole > 0 && aligned(p) && f.at%directAlignment == 0 && f.set(true) {
		n, err = f.File.Write(p[:whole])
		f.at += int64(n)
		if errors.Is(err, unix.EINVAL) {
			f.refused, err = true, nil
		}
		if n == len(p) || err != nil {
			return n, err
		}
	}
	f.set(false)
	rest, err := f.File.Write(p[n:])
	f.at += int64(rest)
	return n + rest, err
}

// set turns direct writing on or off, and reports whether it succeeded.
func (f *diskFile) set(direct bool) bool {
	if direct == f.direct {
		return true
	}
	if f.refused && direct {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags^unix.O_DIRECT)
	}
	if err != nil {
		f.refused = true
		return false
	}
	f.direct = direct
	return true
}

// Reserve implements [Output]. A file system that cannot do so reserves nothing.
func (f *diskFile) Reserve(size int64) {
	unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, f.at, max(1, size-f.at))
}
