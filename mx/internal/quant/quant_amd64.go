//go:build amd64 && !purego

package quant

import (
	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

// Supported says whether a tier has the kernels. They permute bytes, which takes AVX512-VBMI: most CPUs with AVX-512 have
// it, but the tier does not promise it.
func Supported(t cpu.Tier) bool {
	return t >= cpu.AVX512 && cpuid.CPU.Supports(cpuid.AVX512VBMI)
}
