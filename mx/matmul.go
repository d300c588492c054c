package mx

// The three products of a linear layer with weight w [N, K]. Each contracts along the blocks of
// both operands. Products of elements are exact, and the Sum adds them up. The operands may have
// any formats. multiply.go chooses the implementation.

import (
	"fmt"
	"slices"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// MatMul computes the forward product y = x·wᵀ.
//
// x: [M, K] and w: [N, K] have blocks AlongRows. y: [M, N] is FP32 or BF16.
func (s Sum) MatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, false, profile.Forward), y.Rows, y.Cols, x.Cols(), nil).End()
	x.check(AlongRows, y.Rows, x.Cols())
	w.check(AlongRows, y.Cols, x.Cols())
	m := s.multiplier(x, w)
	if m == nil {
		tensor.MatMulScaled(ex, y, x.Operand(), w.Operand())
		return
	}
	p := newProduct(ex, m, x, w)
	defer p.release()
	p.multiply(p, y, p.rows(0, 0, y.Rows, 0), p.rows(1, 0, y.Cols, 0))
}

// Dgrad computes the gradient of the input: dx = dy·w.
//
// dy: [M, N] has blocks AlongRows. w: [N, K] has blocks AlongCols. dx: [M, K] is FP32 or BF16.
func (s Sum) Dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, false, profile.Dgrad), dx.Rows, dx.Cols, dy.Cols(), nil).End()
	dy.check(AlongRows, dx.Rows, dy.Cols())
	w.check(AlongCols, dy.Cols(), dx.Cols)
	m := s.multiplier(dy, w)
	if m == nil {
		tensor.MatMulScaled(ex, dx, dy.Operand(), w.Operand())
		return
	}
	p := newProduct(ex, m, dy, w)
	defer p.release()
	p.multiply(p, dx, p.rows(0, 0, dx.Rows, 0), p.cols(1, 0, w.Rows(), 0))
}

// Wgrad computes the gradient of the weight: dw = dyᵀ·x, or dw += dyᵀ·x if accumulate.
//
// dy: [M, N] and x: [M, K] have blocks AlongCols. dw: [N, K] is FP32. The rows are summed in spans,
// as in tensor.Wgrad. A span is the rows of one sequence and whole blocks of both operands. It may
// also be all rows, which 0 stands for. Then accumulate goes on with the sums in dw if
// [Sum.Continues] says so, as GroupedWgrad does.
func (s Sum) Wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, span int, accumulate bool) {
	dy.check(AlongCols, dy.Rows(), dw.Rows)
	s.WgradRows(ex, dw, dy, x, 0, span, accumulate)
}

// WgradRows is Wgrad for the rows of a weight's gradient from row first on, which belong to the
// columns of dy from first on. dw has these rows.
func (s Sum) WgradRows(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, false, profile.Wgrad), dw.Rows, dw.Cols, x.Rows(), nil).End()
	if first < 0 || dw.Rows > dy.Cols()-first {
		panic(fmt.Sprintf("mx: rows [%d, %d) of the gradient of %d rows", first, first+dw.Rows, dy.Cols()))
	}
	dy.check(AlongCols, dy.Rows(), dy.Cols())
	x.check(AlongCols, dy.Rows(), dw.Cols)
	m := s.multiplier(dy, x)
	if m == nil {
		wgradScaled(ex, dw, dy.Operand().RowSlice(first, first+dw.Rows), x.Operand(), span, accumulate)
		return
	}
	p := newProduct(ex, m, dy, x)
	defer p.release()
	p.gradient(p, dw, p.cols(0, 0, dy.Rows(), 0).slice(first, first+dw.Rows), p.cols(1, 0, x.Rows(), 0), span, accumulate)
}

// wgradScaled computes dw = a·bᵀ, or adds it to dw, in formats of OCP MX.
func wgradScaled(ex *tensor.Exec, dw tensor.Matrix, a, b tensor.Scaled, span int, accumulate bool) {
	switch {
	case span > 0:
		tensor.MatMulScaledSpans(ex, dw, a, b, span, accumulate)
	case accumulate:
		tensor.MatMulScaledAdd(ex, dw, a, b)
	default:
		tensor.MatMulScaled(ex, dw, a, b)
	}
}

// GroupedMatMul computes y = x·w[g]ᵀ for the rows of each group g. A group is usually the rows of
// one expert. Group g ends before row ends[g] and may be empty.
//
// x: [rows, K] and w: [G·N, K] have blocks AlongRows. w is the weights of all groups in order. y:
// [rows, N].
func (s Sum) GroupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, len(ends) > 1, profile.Forward), y.Rows, y.Cols, x.Cols(), ends).End()
	checkEnds(ends, y.Rows)
	x.check(AlongRows, y.Rows, x.Cols())
	w.check(AlongRows, len(ends)*y.Cols, x.Cols())
	m := s.multiplier(x, w)
	if m == nil {
		tensor.GroupedMatMulScaled(ex, y, x.Operand(), w.Operand(), ends)
		return
	}
	p := newProduct(ex, m, x, w)
	defer p.release()
	for g := range ends {
		lo, hi := group(ends, g)
		p.multiply(p, y.RowSlice(lo, hi), p.rows(0, lo, hi, g), p.rows(1, g*y.Cols, (g+1)*y.Cols, g))
	}
}

// GroupedDgrad computes dx = dy·w[g] for the rows of each group g.
//
// dy: [rows, N] has blocks AlongRows. w: [G·N, K] has blocks AlongCols in G groups of N rows (see
// EqualGroups). dx: [rows, K].
func (s Sum) GroupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, len(ends) > 1, profile.Dgrad), dx.Rows, dx.Cols, dy.Cols(), ends).End()
	checkEnds(ends, dx.Rows)
	dy.check(AlongRows, dx.Rows, dy.Cols())
	w.check(AlongCols, len(ends)*dy.Cols(), dx.Cols)
	m := s.multiplier(dy, w)
	if m == nil {
		tensor.GroupedDgradScaled(ex, dx, dy.Operand(), w.stored(), ends)
		return
	}
	p := newProduct(ex, m, dy, w)
	defer p.release()
	n := dy.Cols()
	for g := range ends {
		lo, hi := group(ends, g)
		p.multiply(p, dx.RowSlice(lo, hi), p.rows(0, lo, hi, g), p.cols(1, g*n, (g+1)*n, g))
	}
}

// GroupedWgrad computes dw[g] = dyᵀ·x over the rows of each group g, or dw[g] += dyᵀ·x if
// accumulate.
//
// dy: [rows, N] and x: [rows, K] have blocks AlongCols and the same Ends. dw: [G, N, K] is FP32.
func (s Sum) GroupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	defer ex.ProfilingProduct(profile.Product(profile.MX, len(x.Ends) > 1, profile.Wgrad), dy.Cols(), x.Cols(), x.Rows(), x.Ends).End()
	if len(dy.Ends) != dw.Dim(0) || !slices.Equal(dy.Ends, x.Ends) {
		panic(fmt.Sprintf("mx: the groups of dy end at %v and those of x at %v, but dw has %d groups: all three must agree", dy.Ends, x.Ends, dw.Dim(0)))
	}
	dy.check(AlongCols, dy.Rows(), dw.Dim(1))
	x.check(AlongCols, dy.Rows(), dw.Dim(2))
	m := s.multiplier(dy, x)
	if m == nil {
		tensor.GroupedWgradScaled(ex, dw, dy.stored(), x.stored(), dy.Ends, accumulate)
		return
	}
	p := newProduct(ex, m, dy, x)
	defer p.release()
	for g := range dy.Ends {
		lo, hi := group(dy.Ends, g)
		p.gradient(p, dw.Index(g).Mat(), p.cols(0, lo, hi, g), p.cols(1, lo, hi, g), 0, accumulate)
	}
}

// EqualGroups returns the ends of n groups of equal size, as in the weights of n experts.
func EqualGroups(n, rows int) []int32 {
	ends := make([]int32, n)
	for g := range ends {
		ends[g] = int32((g + 1) * rows)
	}
	return ends
}

func checkEnds(ends []int32, rows int) {
	if len(ends) == 0 && rows > 0 || len(ends) > 0 && int(ends[len(ends)-1]) != rows {
		panic(fmt.Sprintf("mx: groups end at %v, but the matrix has %d rows: the last group must end there", ends, rows))
	}
}
