//go:build unix

package datasets

import (
	"fmt"
	"os"
	"syscall"
)

// mapFile maps a file into memory, read-only. All processes that map it share its pages. unmap ends
// the mapping.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size == 0 || size != int64(int(size)) {
		return nil, nil, fmt.Errorf("it has %d bytes", size)
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("it cannot be mapped into memory: %w", err)
	}
	return b, func() error { return syscall.Munmap(b) }, nil
}
