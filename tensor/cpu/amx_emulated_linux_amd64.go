//go:build amxemulated && !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// supports reports whether instructions with a feature run: those of this CPU, and AMX, which
// internal/testing/amx executes.
func supports(f cpuid.FeatureID) bool {
	switch f {
	case cpuid.AMXTILE, cpuid.AMXBF16, cpuid.AMXINT8:
		return true
	}
	return cpuid.CPU.Supports(f)
}

// tilesAllowed reports whether tile registers may be used. Those that are emulated need no
// permission.
func tilesAllowed() bool { return true }
