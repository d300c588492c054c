package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/internal/vec"
)

// TestPromotedRuns: a product with scales in runs along k is the sum of the runs' products times
// their scales, in FP32, for every tier, few and many rows, both layouts of scales, and spans.
func TestPromotedRuns(t *testing.T) {
	var s Scratch
	for _, sh := range []struct{ m, n, k, span int }{{3, 40, 160, 0}, {40, 70, 160, 0}, {20, 36, 512, 256}} {
		for _, l := range layouts {
			// Columns have their own scales, or share those of 128 rows from here on.
			for _, first := range []int{-1, 92, 64} {
				t.Run(fmt.Sprint(sh, l, first), func(t *testing.T) {
					const run = 128
					r := rand.New(rand.NewPCG(uint64(sh.m), uint64(sh.k)))
					a, b := operands[uint16](r, sh.m, sh.n, sh.k, l.aT, l.bT)
					start, runs := results(r, sh.m, sh.n), (sh.k+run-1)/run
					random := func(n int) []float32 {
						all := make([]float32, n)
						for i := range all {
							all[i] = 1 + r.Float32()
						}
						return all
					}
					scales := BlockScales{Run: run, A: ScaleView{Values: random(sh.m * runs), Rows: 1, RowStride: runs, RunStride: 1}}
					scales.B = ScaleView{Values: random(sh.n * runs), Rows: 1, RowStride: 1, RunStride: sh.n}
					if first >= 0 {
						scales.B = ScaleView{Values: random((sh.n + first + 127) / 128 * runs), First: first, Rows: 128, RowStride: runs, RunStride: 1}
					}
					eachTier(t, func(t *testing.T, ks *kernels) {
						s.poison()
						got, want := start.clone(), start.clone()
						ks.bf16(&s, got.View, a.View, b.View, mode{add: true, span: sh.span, blocks: &scales})
						span := sh.span
						if span == 0 {
							span = sh.k
						}
						var leaves []matrix[float32]
						for k := 0; k < sh.k; k += span {
							leaf := newMatrix[float32](sh.m, sh.n, false, guard)
							zeroRows[float32](leaf.View)
							for from := k; from < min(k+span, sh.k); from += run {
								n := min(run, sh.k-from)
								part := newMatrix[float32](sh.m, sh.n, false, guard)
								ks.bf16(&s, part.View, a.slice(2, 0, from, sh.m, n), b.slice(2, from, 0, n, sh.n), mode{})
								scales.add(leaf.View, part.View, 0, 0, from/run)
							}
							leaves = append(leaves, leaf)
						}
						for i, x := range treeSum(leaves) {
							*at[float32](want.View, i/sh.n, i%sh.n) += x
						}
						checkSame(t, got.elements(t), want.elements(t))
						rounded := newMatrix[uint16](sh.m, sh.n, false, 7)
						if sh.span == 0 {
							ks.bf16Rounded(&s, rounded.View, a.View, b.View, mode{blocks: &scales})
							for i, x := range rounded.elements(t) {
								if want := vec.ToBF16(*at[float32](leaves[0].View, i/sh.n, i%sh.n)); x != want {
									t.Fatalf("element %d is %#x rounded, want %#x", i, x, want)
								}
							}
						}
					})
				})
			}
		}
	}
}
