package mx

import (
	"testing"

	"spmoe/tensor/cpu"
)

// eachTier calls f with each set of quantisation kernels that this CPU can use, plain Go first, and the lowest tier that
// uses them.
func eachTier(f func(tier string)) {
	before := kernels
	defer func() { kernels = before }()
	for _, tier := range cpu.Tiers() {
		if tier != cpu.Generic && kernelsOf(tier) == kernels {
			continue
		}
		kernels = kernelsOf(tier)
		f(tier.String())
	}
}

// EachTier is eachTier as subtests, for package mx_test.
func EachTier(t *testing.T, f func(t *testing.T)) {
	eachTier(func(tier string) { t.Run(tier, f) })
}
