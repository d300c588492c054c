//go:build !linux

package checkpoint

import "os"

// diskFile is a plain file where there are no direct writes.
type diskFile struct{ *os.File }
