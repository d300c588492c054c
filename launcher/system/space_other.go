//go:build !linux

package system

import "os"

func freeSpace(string) (free int64, ok bool) { return 0, false }

// Freed returns the bytes that deleting a file gives back to its disk.
func Freed(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
