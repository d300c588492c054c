package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/format"
)

// treeSum adds up leaves as products with spans do, following the definition.
func treeSum(leaves []matrix[float32]) []float32 {
	if len(leaves) == 1 {
		var all []float32
		for i := range leaves[0].Rows {
			all = append(all, row[float32](leaves[0].View, i)...)
		}
		return all
	}
	half := 1
	for 2*half < len(leaves) {
		half *= 2
	}
	left, right := treeSum(leaves[:half]), treeSum(leaves[half:])
	for i, x := range right {
		left[i] += x
	}
	return left
}

// spanShapes has k that gives various numbers of spans: one, a power of two, others, a shorter last
// one, odd ones, more than a run of steps.
var spanShapes = []struct{ m, n, k, span int }{
	{20, 40, 64, 64}, {20, 40, 64, 100}, {13, 47, 128, 32}, {30, 33, 320, 64}, {7, 17, 224, 32}, {25, 64, 352, 128},
	{100, 70, 15, 5}, {17, 40, 111, 37}, {14, 31, 21, 2}, {201, 40, 320, 64}, {6, 33, 2304, 1152}, {3, 40, 96, 32}, {12, 0, 64, 32}, {5, 5, 0, 32},
}

// checkSpans compares a product with spans, stored and added to start, with the tree of the spans'
// products. It does so again with each of these multiplied by a factor.
func checkSpans(t *testing.T, start matrix[float32], k, span int, spans func(c View, m mode), product func(c View, k, n int)) {
	t.Helper()
	for _, alpha := range []float32{0, 0.3} {
		checkSpansTimes(t, start, k, span, alpha, spans, product)
	}
}

func checkSpansTimes(t *testing.T, start matrix[float32], k, span int, alpha float32, spans func(c View, m mode), product func(c View, k, n int)) {
	t.Helper()
	added, stored := start.clone(), start.clone()
	spans(added.View, mode{add: true, span: span, alpha: alpha})
	spans(stored.View, mode{span: span, alpha: alpha})
	var leaves []matrix[float32]
	for at := 0; at < k; at += span {
		leaf := newMatrix[float32](start.Rows, start.Cols, false, guard)
		product(leaf.View, at, min(span, k-at))
		mode{alpha: alpha}.times(leaf.View)
		leaves = append(leaves, leaf)
	}
	sum, sums := start.clone(), newMatrix[float32](start.Rows, start.Cols, false, guard)
	zeroRows[float32](sums.View)
	if k > 0 && start.Cols > 0 {
		for i, x := range treeSum(leaves) {
			*at[float32](sum.View, i/start.Cols, i%start.Cols) += x
			*at[float32](sums.View, i/start.Cols, i%start.Cols) = x
		}
	}
	checkSame(t, added.elements(t), sum.elements(t))
	checkSame(t, stored.elements(t), sums.elements(t))
}

func TestSpansAreATree(t *testing.T) {
	var s Scratch
	for _, sh := range spanShapes {
		for _, l := range layouts {
			t.Run(fmt.Sprint(sh, l), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(sh.m), uint64(sh.k)))
				start := results(r, sh.m, sh.n)
				a, b := operands[uint16](r, sh.m, sh.n, sh.k, l.aT, l.bT)
				fa, fb := operands[float32](r, sh.m, sh.n, sh.k, l.aT, l.bT)
				eachTier(t, func(t *testing.T, ks *kernels) {
					s.poison()
					checkSpans(t, start, sh.k, sh.span,
						func(c View, m mode) { ks.bf16(&s, c, a.View, b.View, m) },
						func(c View, k, n int) {
							ks.bf16(&s, c, a.slice(2, 0, k, sh.m, n), b.slice(2, k, 0, n, sh.n), mode{})
						})
					checkSpans(t, start, sh.k, sh.span,
						func(c View, m mode) { ks.fp32(&s, c, fa.View, fb.View, m) },
						func(c View, k, n int) {
							ks.fp32(&s, c, fa.slice(4, 0, k, sh.m, n), fb.slice(4, k, 0, n, sh.n), mode{})
						})
				})
			})
		}
	}
}

func TestScaledSpansAreATree(t *testing.T) {
	var s Scratch
	for i, sh := range spanShapes {
		if sh.span%format.MXBlock != 0 && sh.span < sh.k {
			continue
		}
		for l := range 4 {
			for _, extreme := range []bool{false, true} {
				if extreme && sh.m*sh.n*sh.k > 1<<18 {
					continue
				}
				aT, bT, fa, fb := l&1 == 1, l&2 == 2, formats[(i+l)%3], formats[(i+l/2)%3]
				t.Run(fmt.Sprint(sh, fa, aT, fb, bT, extreme), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(sh.m), uint64(sh.k)))
					start := results(r, sh.m, sh.n)
					scales := near(r)
					if extreme { // sometimes a scale that no fast path takes
						scales = func() uint8 {
							if r.IntN(40) == 0 {
								return uint8(r.IntN(2) * 250)
							}
							return near(r)()
						}
					}
					a := newScaled(fa, sh.m, sh.k, aT, aT, finite(r, fa), scales)
					b := newScaled(fb, sh.n, sh.k, bT, bT, finite(r, fb), scales)
					eachTier(t, func(t *testing.T, ks *kernels) {
						s.poison()
						checkSpans(t, start, sh.k, sh.span,
							func(c View, m mode) { ks.mx(&s, c, View{}, a.Scaled, b.Scaled, m) },
							func(c View, k, n int) { ks.mx(&s, c, View{}, a.along(k, n), b.along(k, n), mode{}) })
					})
				})
			}
		}
	}
}
