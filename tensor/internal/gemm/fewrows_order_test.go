package gemm

// The order of summation of direct products, in plain Go. Across and transposed products have the
// order of panels.

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// sixteenChains adds row i of a times column j of b, in BF16, to c. Chain l takes the pairs (k,
// k+1) with k%32 = 2l, the second of a pair first. Of every four chains the sum is (0+2)+(1+3).
// Then the first two and the last two of these sums are added, and then those two.
func sixteenChains(a, b View, i, j int, c float32) float32 {
	var chains [16]float32
	for k := 0; k < a.Cols; k += 2 {
		n := min(2, a.Cols-k)
		l := k / 2 % 16
		chains[l] = chain(a.slice(2, i, k, 1, n), b.slice(2, k, j, n, 1), 0, 0, chains[l])
	}
	var fours [4]float32
	for q := range fours {
		l := chains[4*q : 4*q+4]
		fours[q] = (l[0] + l[2]) + (l[1] + l[3])
	}
	return c + ((fours[0] + fours[1]) + (fours[2] + fours[3]))
}

// Rows of b that are cut into several runs and strips have the order of summation of whole rows,
// for one to eight panels of a.
func TestDirectRuns(t *testing.T) {
	for _, sh := range []struct{ m, n, k int }{
		{1, 20, 8300}, {5, 100, 1700}, {8, 203, 2083}, {16, 110, 1088}, {18, 205, 1056}, {23, 99, 2048}, {32, 197, 1091}, {64, 2, 1100}, {64, 98, 1056},
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

// checkOrder compares sums of a·b, in BF16, with the order of panels.
func checkOrder(t *testing.T, sums matrix[float32], a, b View, tiles bool) {
	t.Helper()
	order := panelOrder(tiles)
	for i, sum := range sums.elements(t) {
		if want := order(a, b, i/b.Cols, i%b.Cols, 0); sum != want {
			t.Fatalf("element %d, %d is %g, want %g", i/b.Cols, i%b.Cols, sum, want)
		}
	}
}
