//go:build amd64 && !linux && !purego

package cpu

// tilesAllowed says whether tile registers may be used: only Linux is known to give them.
func tilesAllowed() bool { return false }
