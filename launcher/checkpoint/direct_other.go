//go:build !linux

package checkpoint

import "os"

// diskFile is a plain file on systems without direct writes.
type diskFile struct{ *os.File }

// Reserve implements [Output]. It reserves nothing.
func (diskFile) Reserve(int64) {}

// freed returns the bytes that deleting a file gives back to its disk.
func freed(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
