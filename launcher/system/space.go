package system

// Space on the disk of a folder.

import (
	"os"
	"path/filepath"
)

// FreeSpace returns the bytes that this user may still write to the file system of a folder, which
// need not exist yet. ok is false if they are unknown.
func FreeSpace(folder string) (free int64, ok bool) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return 0, false
	}
	for {
		if _, err := os.Stat(path); err == nil {
			return freeSpace(path)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return 0, false
		}
		path = parent
	}
}
