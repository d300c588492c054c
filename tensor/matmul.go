package tensor

import (
	"fmt"

	"spmoe/tensor/internal/gemm"
	"spmoe/tensor/profile"
)

// MatMul computes c = a·b with FP32 accumulation.
//
// a: [M, K], b: [K, N], both FP32 or both BF16. Either may be transposed. c: [M, N] is FP32 or has
// the type of the operands, rounded once. A linear layer y = x·Wᵀ is MatMul(ex, y, x, w.T()).
func MatMul(ex *Exec, c, a, b Matrix) {
	MatMulTimes(ex, c, a, b, 0)
}

// MatMulTimes computes c = alpha·(a·b). The product is rounded to FP32 before it is multiplied by
// alpha. An alpha of 0 stands for 1.
func MatMulTimes(ex *Exec, c, a, b Matrix, alpha float32) {
	defer ex.ProfilingProduct(productFamily(a, false, passOf(b)), c.Rows, c.Cols, a.Cols, nil).End()
	checkMatMul(c, a, b)
	ex.byCells(flops(c, a), operands{c: c, a: a, b: b, alpha: alpha}, matMulCells)
}

// MatMulAdd computes c += a·b for an FP32 c. The operands are as in MatMul.
func MatMulAdd(ex *Exec, c, a, b Matrix) {
	pass := passOf(b)
	if a.colStride != 1 {
		pass = profile.Wgrad // dyᵀ·x
	}
	defer ex.ProfilingProduct(productFamily(a, false, pass), c.Rows, c.Cols, a.Cols, nil).End()
	checkMatMul(c, a, b)
	if c.dtype != FP32 {
		panic("tensor: MatMulAdd accumulates in FP32 only")
	}
	ex.byCells(flops(c, a), operands{c: c, a: a, b: b, accumulate: true}, matMulCells)
}

// Wgrad computes the gradient of a linear layer's weight: dw = dyᵀ·x, or dw += dyᵀ·x if accumulate
// is set.
//
// dy: [rows, N], x: [rows, K], both FP32 or both BF16. dw: [N, K] FP32.
//
// The rows are summed in spans of span rows, usually one sequence each. Each span is summed as if
// it were alone. A balanced binary tree then adds up the sums of the n spans. Its first half has
// 2^i leaves, where 2^i is the largest power of two below n. The bits of dw therefore do not depend
// on how sequences are distributed over ranks. This holds if each rank has 2^j sequences and the
// ranks' gradients are added in the same tree order.
func Wgrad(ex *Exec, dw, dy, x Matrix, span int, accumulate bool) {
	WgradTimes(ex, dw, dy, x, span, 0, accumulate)
}

// WgradTimes is Wgrad with the sum of each span multiplied by alpha, after it is rounded to FP32.
// An alpha of 0 stands for 1.
func WgradTimes(ex *Exec, dw, dy, x Matrix, span int, alpha float32, accumulate bool) {
	defer ex.ProfilingProduct(productFamily(x, false, profile.Wgrad), dw.Rows, dw.Cols, x.Rows, nil).End()
	checkMatMul(dw, dy.T(), x)
	checkSpan(dw, span)
	ex.byCells(flops(dw, dy.T()), operands{c: dw, a: dy.T(), b: x, span: span, alpha: alpha, accumulate: accumulate}, wgradCells)
}

// wgradCells computes cells [lo, hi) of dw.
func wgradCells(ex *Exec, o operands, lo, hi int) {
	for i := lo; i < hi; i++ {
		m := o.cell(i)
		c, a, b := m.c.gemmView(), m.a.gemmView(), m.b.gemmView()
		if o.a.dtype == BF16 {
			gemm.BF16Times(ex.packing(), c, a, b, o.alpha, o.span, o.accumulate)
		} else {
			gemm.FP32Times(ex.packing(), c, a, b, o.alpha, o.span, o.accumulate)
		}
	}
}

// checkSpan panics unless c can be summed in spans.
func checkSpan(c Matrix, span int) {
	if c.dtype != FP32 {
		panic(fmt.Sprintf("tensor: the gradient of a weight is %v, want fp32", c.dtype))
	}
	if span < 1 {
		panic(fmt.Sprintf("tensor: spans of %d rows, want 1 or more", span))
	}
}

// matMulCells computes cells [lo, hi) of c.
func matMulCells(ex *Exec, o operands, lo, hi int) {
	for i := lo; i < hi; i++ {
		m := o.cell(i)
		multiplyViews(ex, m.c, m.a.gemmView(), m.b.gemmView(), m.a.dtype, o.alpha, o.accumulate)
	}
}

// matMul computes a product on the calling thread.
func matMul(ex *Exec, c, a, b Matrix, accumulate bool) {
	multiplyViews(ex, c, a.gemmView(), b.gemmView(), a.dtype, 0, accumulate)
}

// retainedOperand is the right operand of several products on one thread. It is packed once.
type retainedOperand struct {
	gemm.Retained
	dtype DType
}

// newRetained returns operand i of the running kernel, which is not set yet and has at most [k, n]
// elements. Its panels are in the arena.
func newRetained(ex *Exec, i int, dtype DType, k, n int) *retainedOperand {
	room := ex.New(UINT8, gemm.RetainedBytes(k, n, dtype.Size()))
	ex.retained[i] = retainedOperand{gemm.NewRetained(room.Bytes()), dtype}
	return &ex.retained[i]
}

// set makes b the operand of the following products. The first one packs it.
func (r *retainedOperand) set(b Matrix) { r.Set(b.gemmView()) }

// times computes c = a·b or c += a·b on the calling thread, where b is a part of the operand. Only
// one that begins at its first element is not packed again.
func (r *retainedOperand) times(ex *Exec, c, a, b Matrix, accumulate bool) {
	if r.dtype == BF16 {
		gemm.BF16Retained(ex.packing(), c.gemmView(), a.gemmView(), b.gemmView(), &r.Retained, accumulate)
		return
	}
	gemm.FP32Retained(ex.packing(), c.gemmView(), a.gemmView(), b.gemmView(), &r.Retained, accumulate)
}

// multiplyViews is matMul for operands of type dtype. It multiplies the product by alpha unless
// that is 0.
func multiplyViews(ex *Exec, c Matrix, a, b gemm.View, dtype DType, alpha float32, accumulate bool) {
	switch {
	case c.dtype == BF16:
		gemm.BF16ToBF16Times(ex.packing(), c.gemmView(), a, b, alpha)
	case dtype == BF16:
		gemm.BF16Times(ex.packing(), c.gemmView(), a, b, alpha, 0, accumulate)
	default:
		gemm.FP32Times(ex.packing(), c.gemmView(), a, b, alpha, 0, accumulate)
	}
}

// flops returns the number of operations of c = a·b.
func flops(c, a Matrix) int { return 2 * c.Rows * c.Cols * a.Cols }

func checkMatMul(c, a, b Matrix) {
	if a.Cols != b.Rows || c.Rows != a.Rows || c.Cols != b.Cols {
		panic(fmt.Sprintf("tensor: product of [%d, %d] and [%d, %d] into [%d, %d]", a.Rows, a.Cols, b.Rows, b.Cols, c.Rows, c.Cols))
	}
	if !a.dtype.float() || a.dtype != b.dtype || c.dtype != FP32 && c.dtype != a.dtype {
		panic(fmt.Sprintf("tensor: product of %v and %v into %v", a.dtype, b.dtype, c.dtype))
	}
	c.checkRows()
}

func (m Matrix) gemmView() gemm.View {
	return gemm.View{Ptr: m.data, Rows: m.Rows, Cols: m.Cols, RowStride: m.rowStride, ColStride: m.colStride}
}
