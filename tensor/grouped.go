package tensor

import (
	"fmt"

	"spmoe/tensor/profile"
)

// Grouped matrix products: the rows of the activations are cut into groups, one an expert,
// by end offsets (ends[g] is one past the last row of group g), and each group meets its own
// weight matrix. A group may be empty.

// GroupedMatMul computes y = x·w[g]ᵀ for the rows of each group g.
//
// x: [rows, K], y: [rows, N], w: [G, N, K], ends: [G].
func GroupedMatMul(ex *Exec, y, x Matrix, w Tensor, ends []int32) {
	defer ex.Enter(ex.Enter(productFamily(x, len(ends) > 1, profile.Forward)))
	ex.byColumns(y.Cols, flops(y, x), operands{c: y, a: x, w: w, ends: ends}, func(ex *Exec, o operands, from, to int) {
		eachGroup(o.ends, func(g, lo, hi int) {
			checkedMatMul(ex, columns(o.c.RowSlice(lo, hi), from, to), o.a.RowSlice(lo, hi), columns(o.w.Index(g).Mat().T(), from, to), false)
		})
	})
}

// GroupedDgrad computes dx = dy·w[g] for the rows of each group g; shapes as GroupedMatMul.
func GroupedDgrad(ex *Exec, dx, dy Matrix, w Tensor, ends []int32) {
	defer ex.Enter(ex.Enter(productFamily(dy, len(ends) > 1, profile.Dgrad)))
	ex.byColumns(dx.Cols, flops(dx, dy), operands{c: dx, a: dy, w: w, ends: ends}, func(ex *Exec, o operands, from, to int) {
		eachGroup(o.ends, func(g, lo, hi int) {
			checkedMatMul(ex, columns(o.c.RowSlice(lo, hi), from, to), o.a.RowSlice(lo, hi), columns(o.w.Index(g).Mat(), from, to), false)
		})
	})
}

// GroupedWgrad computes dw[g] += dyᵀ·x over the rows of each group g; dw: [G, N, K] FP32.
func GroupedWgrad(ex *Exec, dw Tensor, dy, x Matrix, ends []int32) {
	defer ex.Enter(ex.Enter(productFamily(x, len(ends) > 1, profile.Wgrad)))
	ex.byColumns(x.Cols, 2*x.Rows*x.Cols*dy.Cols, operands{a: dy, b: x, w: dw, ends: ends}, func(ex *Exec, o operands, from, to int) {
		eachGroup(o.ends, func(g, lo, hi int) {
			checkedMatMul(ex, columns(o.w.Index(g).Mat(), from, to), o.a.RowSlice(lo, hi).T(), columns(o.b.RowSlice(lo, hi), from, to), true)
		})
	})
}

// checkedMatMul is matMul after a look at the shapes.
func checkedMatMul(ex *Exec, c, a, b Matrix, accumulate bool) {
	checkMatMul(c, a, b)
	matMul(ex, c, a, b, accumulate)
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
