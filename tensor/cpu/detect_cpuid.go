//go:build (amd64 || arm64) && !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// detect reads the features from CPUID, on arm64 from the auxiliary vector (Linux) or sysctl
// (macOS). It asks the operating system for tile registers if the CPU has them. Package cpuid also
// checks that the operating system saves the wide registers.
func detect() Features {
	found := Features{
		FastBF16:      cpuid.CPU.Supports(cpuid.AVX512BF16) && cpuid.CPU.VendorID != cpuid.Intel,
		TileRegisters: supports(cpuid.AMXTILE) && supports(cpuid.AMXBF16) && tilesAllowed(),
	}
	for _, r := range rows {
		for _, f := range r.needs {
			if f != TileRegisters {
				found[f] = supports(f)
			}
		}
	}
	return found
}
