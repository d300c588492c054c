//go:build ((amd64 && !linux) || arm64) && !purego

package cpu

// tilesAllowed reports whether tile registers may be used. Only Linux is known to grant them.
func tilesAllowed() bool { return false }
