//go:build amd64 && !linux && !purego

package cpu

// tilesAllowed reports that tile registers cannot be used. Only Linux is known to offer them.
func tilesAllowed() bool { return false }
