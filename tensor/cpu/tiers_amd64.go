//go:build amd64 && !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// available asks CPUID; the library also checks that the operating system saves the wide registers.
func available() []Tier {
	needs := [][]cpuid.FeatureID{
		AVX2:       {cpuid.AVX2, cpuid.FMA3, cpuid.F16C},
		AVX512:     {cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL},
		AVX512BF16: {cpuid.AVX512BF16},
		AMX:        {cpuid.AVX512VBMI, cpuid.AVX512VNNI, cpuid.GFNI, cpuid.AMXTILE, cpuid.AMXBF16, cpuid.AMXINT8},
	}
	have := []Tier{Generic}
	for t := AVX2; int(t) < len(needs) && cpuid.CPU.Supports(needs[t]...); t++ {
		if t == AMX && !tilesAllowed() {
			break
		}
		have = append(have, t)
	}
	return have
}
