package tensor

import "fmt"

// Grouped matrix products: the rows of the activations are cut into groups, one an expert,
// by end offsets (ends[g] is one past the last row of group g), and each group meets its own
// weight matrix. A group may be empty.

// GroupedMatMul computes y = x·w[g]ᵀ for the rows of each group g.
//
// x: [rows, K], y: [rows, N], w: [G, N, K], ends: [G].
func GroupedMatMul(ex *Exec, y, x Matrix, w Tensor, ends []int32) {
	eachGroup(ends, func(g, lo, hi int) {
		MatMul(ex, y.RowSlice(lo, hi), x.RowSlice(lo, hi), w.Index(g).Mat().T())
	})
}

// GroupedDgrad computes dx = dy·w[g] for the rows of each group g; shapes as GroupedMatMul.
func GroupedDgrad(ex *Exec, dx, dy Matrix, w Tensor, ends []int32) {
	eachGroup(ends, func(g, lo, hi int) {
		MatMul(ex, dx.RowSlice(lo, hi), dy.RowSlice(lo, hi), w.Index(g).Mat())
	})
}

// GroupedWgrad computes dw[g] += dyᵀ·x over the rows of each group g; dw: [G, N, K] FP32.
func GroupedWgrad(ex *Exec, dw Tensor, dy, x Matrix, ends []int32) {
	eachGroup(ends, func(g, lo, hi int) {
		MatMulAdd(ex, dw.Index(g).Mat(), dy.RowSlice(lo, hi).T(), x.RowSlice(lo, hi))
	})
}

func eachGroup(ends []int32, f func(g, lo, hi int)) {
	lo := 0
	for g, end := range ends {
		hi := int(end)
		if hi < lo {
			panic(fmt.Sprintf("tensor: group %d ends at row %d, before it begins at %d", g, hi, lo))
		}
		if hi > lo {
			f(g, lo, hi)
		}
		lo = hi
	}
}
