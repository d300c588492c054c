package mx

// Products of matrices that are not quantized, by a Sum. The methods are those of package tensor
// with SumFP32.

import (
	"spmoe/tensor"
)

// Multiply computes c = a·b as tensor.MatMul does, with a Sum.
//
// a: [M, K] and b: [K, N] are BF16, of any layout. With SumFP32 they may be FP32. c: [M, N] is FP32
// or BF16, rounded once from FP32.
func (s Sum) Multiply(ex *tensor.Exec, c, a, b tensor.Matrix) {
	if s == SumFP32 {
		tensor.MatMul(ex, c, a, b)
		return
	}
	s.plain(ex, c, a, b.T(), 0, false)
}

// MultiplyOn computes c += a·b for an FP32 c, as tensor.MatMulAdd does, with a Sum. The chain of a
// GPU goes on from c, as if one product had the elements of all. Then all but the last of these
// products have whole blocks of it, 16 elements along K.
func (s Sum) MultiplyOn(ex *tensor.Exec, c, a, b tensor.Matrix) {
	switch s {
	case SumFP32:
		tensor.MatMulAdd(ex, c, a, b)
	case SumExact:
		s.plain(ex, c, a, b.T(), 0, true)
	default:
		s.onCores(ex, c, a, b.T(), tensor.CoreSum{Continue: true})
	}
}

// MultiplyWgrad computes dw = dyᵀ·x, or adds it to dw, as tensor.Wgrad does, with a Sum.
func (s Sum) MultiplyWgrad(ex *tensor.Exec, dw, dy, x tensor.Matrix, span int, accumulate bool) {
	if s == SumFP32 {
		tensor.Wgrad(ex, dw, dy, x, span, accumulate)
		return
	}
	s.plain(ex, dw, dy.T(), x.T(), span, accumulate)
}

// MultiplyGroups computes y = x·w[g]ᵀ for the rows of each group as tensor.GroupedMatMul does, with
// a Sum.
func (s Sum) MultiplyGroups(ex *tensor.Exec, y, x tensor.Matrix, w tensor.Tensor, ends []int32) {
	if s == SumFP32 {
		tensor.GroupedMatMul(ex, y, x, w, ends)
		return
	}
	for g := range ends {
		lo, hi := group(ends, g)
		s.plain(ex, y.RowSlice(lo, hi), x.RowSlice(lo, hi), w.Index(g).Mat(), 0, false)
	}
}

// MultiplyGroupsDgrad computes dx = dy·w[g] for the rows of each group as tensor.GroupedDgrad does,
// with a Sum.
func (s Sum) MultiplyGroupsDgrad(ex *tensor.Exec, dx, dy tensor.Matrix, w tensor.Tensor, ends []int32) {
	if s == SumFP32 {
		tensor.GroupedDgrad(ex, dx, dy, w, ends)
		return
	}
	for g := range ends {
		lo, hi := group(ends, g)
		s.plain(ex, dx.RowSlice(lo, hi), dy.RowSlice(lo, hi), w.Index(g).Mat().T(), 0, false)
	}
}

// MultiplyGroupsWgrad computes dw[g] = dyᵀ·x over the rows of each group, or adds it to dw[g], as
// tensor.GroupedWgrad does, with a Sum.
func (s Sum) MultiplyGroupsWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x tensor.Matrix, ends []int32, accumulate bool) {
	if s == SumFP32 {
		tensor.GroupedWgrad(ex, dw, dy, x, ends, accumulate)
		return
	}
	for g := range ends {
		lo, hi := group(ends, g)
		s.plain(ex, dw.Index(g).Mat(), dy.RowSlice(lo, hi).T(), x.RowSlice(lo, hi).T(), 0, accumulate)
	}
}

// plain computes c = a·bᵀ for BF16 operands by a sum other than SumFP32.
func (s Sum) plain(ex *tensor.Exec, c, a, b tensor.Matrix, span int, accumulate bool) {
	if s == SumExact {
		mark := ex.Mark()
		defer ex.Release(mark)
		multiplyExactly(ex, c, widened(ex, a), widened(ex, b), 1, span, accumulate)
		return
	}
	s.onCores(ex, c, a, b, tensor.CoreSum{Span: span, Accumulate: accumulate})
}

// onCores computes c = a·bᵀ for BF16 operands by the sum of a GPU.
func (s Sum) onCores(ex *tensor.Exec, c, a, b tensor.Matrix, sum tensor.CoreSum) {
	var err error
	if sum.Plan, err = s.Plan(Format{}, Format{}); err != nil {
		panic("mx: " + err.Error())
	}
	tensor.CoreMatMul(ex, c, tensor.BF16Operand(a), tensor.BF16Operand(b), sum)
}

// widened returns an FP32 copy of m in m's layout.
func widened(ex *tensor.Exec, m tensor.Matrix) tensor.Matrix {
	if _, rowStride, colStride := m.Memory(); colStride != 1 && rowStride == 1 {
		return widened(ex, m.T()).T()
	}
	c := ex.New(tensor.FP32, m.Rows, m.Cols).Mat()
	tensor.Convert(ex, c, m)
	return c
}
