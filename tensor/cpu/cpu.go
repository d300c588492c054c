// Package cpu says which instruction tier the kernels use: the best this CPU has, or a lower one named by SPMOE_CPU.
package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Tier is a set of instructions that kernels are written for. Each includes those before it.
type Tier int

// The tiers, lowest first.
const (
	Generic    Tier = iota // plain Go
	AVX2                   // AVX2, FMA and F16C
	AVX512                 // AVX-512 F, BW, DQ, VL
	AVX512BF16             // AVX-512 BF16: VDPBF16PS
	AMX                    // AMX BF16 and INT8: TDPBF16PS and TDPBSSD, on tile registers
)

var names = [...]string{"generic", "avx2", "avx512", "avx512bf16", "amx"}

// String is the name that SPMOE_CPU takes.
func (t Tier) String() string {
	if t < 0 || int(t) >= len(names) {
		return fmt.Sprintf("Tier(%d)", int(t))
	}
	return names[t]
}

// EnvVar is the environment variable that lowers the tier.
const EnvVar = "SPMOE_CPU"

var best, problem = choose(os.Getenv(EnvVar), available())

// Best is the tier in use, fixed when the program starts.
func Best() Tier { return best }

// Check says whether SPMOE_CPU was usable. If it was not, Best is the highest tier this CPU has.
func Check() error { return problem }

// Tiers lists every tier this CPU has, whatever SPMOE_CPU says, lowest first.
func Tiers() []Tier { return available() }

// Model is the CPU's brand name, or "unknown".
func Model() string {
	if cpuid.CPU.BrandName == "" {
		return "unknown"
	}
	return cpuid.CPU.BrandName
}

func choose(env string, have []Tier) (Tier, error) {
	top := have[len(have)-1]
	if env == "" {
		return top, nil
	}
	var valid []string
	for _, t := range have {
		valid = append(valid, t.String())
	}
	if i := slices.Index(valid, strings.ToLower(env)); i >= 0 {
		return have[i], nil
	}
	reason := "is not a tier"
	if slices.Contains(names[:], strings.ToLower(env)) {
		reason = "is a tier this CPU or build does not have"
	}
	return top, fmt.Errorf("%s=%s %s: unset it or use %s", EnvVar, env, reason, strings.Join(valid, ", "))
}
