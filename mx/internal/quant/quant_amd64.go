//go:build amd64 && !purego

package quant

import (
	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

// Tiles says whether a tier has the kernels that work on tiles. They permute bytes, which takes AVX512-VBMI: most CPUs
// with AVX-512 have it, but the tier does not promise it.
func Tiles(t cpu.Tier) bool {
	return t >= cpu.AVX512 && cpuid.CPU.Supports(cpuid.AVX512VBMI)
}

// Lanes says whether a tier has the kernels for any format.
func Lanes(t cpu.Tier) bool { return t >= cpu.AVX2 }
