//go:build !linux

package checkpoint

import "os"

// diskFile is a plain file on systems without direct writes.
type diskFile struct{ *os.File }

// Reserve implements [Output]. It reserves nothing.
func (diskFile) Reserve(int64) {}
