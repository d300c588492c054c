package gemm

// Direct and transposed products have the order of panels.

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Products with few rows and more have the order of their tier: around whole groups of columns,
// units and runs along k, with one to five panels of a.
func TestFewRowsOrder(t *testing.T) {
	for _, sh := range []struct{ m, n, k int }{
		{1, 20, 8304}, {2, 16, 8}, {3, 33, 40}, {5, 100, 1704}, {6, 40, 1056}, {8, 203, 2083}, {16, 110, 1088}, {18, 205, 1056}, {23, 99, 2048}, {64, 98, 1056},
	} {
		t.Run(fmt.Sprintf("%dx%dx%d", sh.m, sh.n, sh.k), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(sh.m), uint64(sh.k)))
			a, b := operands[uint16](r, sh.m, sh.n, sh.k, false, true)
			eachTier(t, func(t *testing.T, ks *kernels) {
				var s Scratch
				s.poison()
				sum := newMatrix[float32](sh.m, sh.n, false, guard)
				ks.bf16(&s, sum.View, a.View, b.View, mode{})
				for i, x := range sum.elements(t) {
					if want := ks.order(a.View, b.View, i/sh.n, i%sh.n, 0); x != want {
						t.Fatalf("element %d, %d is %g, want %g", i/sh.n, i%sh.n, x, want)
					}
				}
			})
		})
	}
}
