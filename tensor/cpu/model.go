package cpu

import (
	"cmp"

	"github.com/klauspost/cpuid/v2"
)

// Model is the CPU's brand name. It is "unknown" if there is none, as on arm64 under Linux.
func Model() string { return cmp.Or(cpuid.CPU.BrandName, "unknown") }
