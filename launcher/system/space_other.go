//go:build !linux

package system

import "os"

func freeSpace(string) (free int64, ok bool) { return 0, false }

// RoomElsewhere returns nothing: this system does not list its file systems.
func RoomElsewhere(folder string, need int64) (path string, free int64) { return "", 0 }

// Freed returns the bytes that deleting a file gives back to its disk.
func Freed(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
