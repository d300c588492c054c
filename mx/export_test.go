package mx

import (
	"slices"
	"testing"

	"spmoe/mx/internal/quant"
	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// eachTier calls f with each set of quantization kernels that this CPU can use, plain Go first, and
// the tier they belong to.
func eachTier(f func(tier string)) {
	for _, tier := range quant.Table.Tiers() {
		if slices.Contains(cpu.Tiers(), tier) {
			with(quant.Table[tier], func() { f(tier.String()) })
		}
	}
}

// EachTier is eachTier as subtests, for package mx_test. It skips the tiers that this CPU does not
// support.
func EachTier(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	cputest.Each(t, quant.Table, func(t *testing.T, ks quant.Kernels) { with(ks, func() { f(t) }) })
}

// with calls f with the given kernels in place.
func with(ks quant.Kernels, f func()) {
	before := kernels
	defer func() { kernels = before }()
	kernels = ks
	f()
}
