package tensor

import (
	"fmt"

	"spmoe/tensor/internal/gemm"
)

// MatMul computes c = a·b with FP32 accumulation.
//
// a: [M, K], b: [K, N], both FP32 or both BF16, either may be transposed; c: [M, N], FP32 or
// of the operands' type, rounded once. A linear layer y = x·Wᵀ is MatMul(ex, y, x, w.T()).
func MatMul(ex *Exec, c, a, b Matrix) {
	checkMatMul(c, a, b)
	if c.dtype == BF16 {
		gemm.BF16ToBF16(&ex.gemm, c.gemmView(), a.gemmView(), b.gemmView())
		return
	}
	matMulFP32(ex, c, a, b, false)
}

// MatMulAdd computes c += a·b for an FP32 c; operands as in MatMul. Weight gradients use it.
func MatMulAdd(ex *Exec, c, a, b Matrix) {
	checkMatMul(c, a, b)
	if c.dtype != FP32 {
		panic("tensor: MatMulAdd accumulates in FP32 only")
	}
	matMulFP32(ex, c, a, b, true)
}

func matMulFP32(ex *Exec, c, a, b Matrix, accumulate bool) {
	if a.dtype == BF16 {
		gemm.BF16(&ex.gemm, c.gemmView(), a.gemmView(), b.gemmView(), accumulate)
	} else {
		gemm.FP32(&ex.gemm, c.gemmView(), a.gemmView(), b.gemmView(), accumulate)
	}
}

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
