//go:build !linux

package checkpoint

import "os"

// diskFile is a file on a disk.
type diskFile struct{ *os.File }

// Reserve implements [Output]. It reserves nothing.
func (diskFile) Reserve(int64) {}
