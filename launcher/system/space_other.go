//go:build !linux

package system

func freeSpace(string) (free int64, ok bool) { return 0, false }

// RoomElsewhere returns nothing: this system does not list its file systems.
func RoomElsewhere(folder string, need int64) (path string, free int64) { return "", 0 }
