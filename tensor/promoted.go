package tensor

import (
	"fmt"

	"spmoe/tensor/internal/gemm"
	"spmoe/tensor/profile"
)

// BlockScales are FP32 scales of both operands of c = a·b in runs of Run elements along the
// contracted dimension.
type BlockScales = gemm.BlockScales

// ScaleView finds the scale of a row of a or a column of b in a run. First is the row of the matrix
// to which the first row of the operand belongs.
type ScaleView = gemm.ScaleView

// MatMulPromoted computes c = Σ scale·(a·b over a run) for BF16 operands. The sum of each run is
// FP32. Scaled, it is added in FP32, in order. Shapes are as in MatMul.
func MatMulPromoted(ex *Exec, c, a, b Matrix, scales BlockScales) {
	defer ex.ProfilingProduct(productFamily(a, false, passOf(b)), c.Rows, c.Cols, a.Cols, nil).End()
	checkPromoted(c, a, b, scales, max(a.Cols, 1))
	ex.byCells(flops(c, a), operands{c: c, a: a, b: b, blocks: scales}, promotedCells)
}

// WgradPromoted is Wgrad with scales as in MatMulPromoted. A span consists of whole runs or covers
// all rows.
func WgradPromoted(ex *Exec, dw, dy, x Matrix, scales BlockScales, span int, accumulate bool) {
	defer ex.ProfilingProduct(productFamily(x, false, profile.Wgrad), dw.Rows, dw.Cols, x.Rows, nil).End()
	checkPromoted(dw, dy.T(), x, scales, span)
	checkSpan(dw, span)
	ex.byCells(flops(dw, dy.T()), operands{c: dw, a: dy.T(), b: x, span: span, blocks: scales, accumulate: accumulate}, promotedCells)
}

func checkPromoted(c, a, b Matrix, scales BlockScales, span int) {
	checkMatMul(c, a, b)
	if a.dtype != BF16 || scales.Run < 1 || span%scales.Run != 0 && span < a.Cols {
		panic(fmt.Sprintf("tensor: spans of %d elements of %v with scales for runs of %d: want BF16 and whole runs", span, a.dtype, scales.Run))
	}
}

// promotedCells computes cells [lo, hi) of c.
func promotedCells(ex *Exec, o operands, lo, hi int) {
	for i := lo; i < hi; i++ {
		row, _, col, _ := o.grid.cell(o.c, i)
		m, scales := o.cell(i), o.blocks
		scales.A.First += row
		scales.B.First += col
		if c, a, b := m.c.gemmView(), m.a.gemmView(), m.b.gemmView(); m.c.dtype == BF16 {
			gemm.BF16ToBF16Promoted(ex.packing(), c, a, b, scales)
		} else {
			gemm.BF16Promoted(ex.packing(), c, a, b, scales, o.span, o.accumulate)
		}
	}
}
