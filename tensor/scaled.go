package tensor

import (
	"fmt"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/gemm"
)

// Scaled is a matrix of codes with one E8M0 scale per 32 codes along a row, as in OCP MX. Element
// (i, k) is decode(Codes[i, k]) · 2^(Scales[i, k/32]-127), or NaN if the scale is 255. Assembly
// kernels multiply E4M3 and E5M2. Other elements are decoded in plain Go, with the same
// result.
//
// Codes: UINT8 [rows, K], Scales: UINT8 [rows, ceil(K/32)]. Both may be transposed or strided.
type Scaled struct {
	Codes, Scales Matrix
	Element       *format.Element // of the codes
}

// RowSlice returns rows [lo, hi), which share memory.
func (s Scaled) RowSlice(lo, hi int) Scaled {
	s.Codes, s.Scales = s.Codes.RowSlice(lo, hi), s.Scales.RowSlice(lo, hi)
	return s
}

// MatMulScaled computes c = a·bᵀ with FP32 accumulation. The element formats of a and b may differ.
//
// a: [M, K], b: [N, K]. c: [M, N], FP32, or BF16 rounded once.
func MatMulScaled(ex *Exec, c Matrix, a, b Scaled) {
	checkScaled(c, a, b)
	ex.byScaledCells(operands{c: c, scaled: [2]Scaled{a, b}})
}

// MatMulScaledAdd computes c += a·bᵀ for an FP32 c. The operands are as in MatMulScaled.
func MatMulScaledAdd(ex *Exec, c Matrix, a, b Scaled) {
	checkScaled(c, a, b)
	if c.dtype != FP32 {
		panic("tensor: MatMulScaledAdd accumulates in FP32 only")
	}
	ex.byScaledCells(operands{c: c, scaled: [2]Scaled{a, b}, accumulate: true})
}

// MatMulScaledSpans computes c = a·bᵀ for an FP32 c, or c += a·bᵀ if accumulate is set. The sum
// over K follows spans, as the sum over rows in Wgrad. span is a multiple of format.MXBlock or at
// least K.
func MatMulScaledSpans(ex *Exec, c Matrix, a, b Scaled, span int, accumulate bool) {
	checkScaled(c, a, b)
	checkSpan(c, span)
	if span%format.MXBlock != 0 && span < a.Codes.Cols {
		panic(fmt.Sprintf("tensor: spans of %d codes, want a multiple of %d", span, format.MXBlock))
	}
	ex.byScaledCells(operands{c: c, scaled: [2]Scaled{a, b}, span: span, accumulate: accumulate})
}

// byScaledCells computes o.c from o.scaled, cell by cell.
func (ex *Exec) byScaledCells(o operands) {
	o.a, o.b = o.scaled[0].Codes, o.scaled[1].Codes.T()
	ex.byCells(flops(o.c, o.a), o, scaledCells)
}

// scaledCells computes cells [lo, hi) of c.
func scaledCells(ex *Exec, o operands, lo, hi int) {
	for i := lo; i < hi; i++ {
		row, endRow, col, endCol := o.grid.cell(o.c, i)
		c := o.c.RowSlice(row, endRow).ColSlice(col, endCol)
		a, b := o.scaled[0].RowSlice(row, endRow).gemmView(), o.scaled[1].RowSlice(col, endCol).gemmView()
		if o.span > 0 {
			gemm.MXSpans(ex.packing(), c.gemmView(), a, b, o.span, o.accumulate)
		} else {
			multiplyScaled(ex, c, a, b, o.accumulate)
		}
	}
}

// multiplyScaled computes a product on the calling thread.
func multiplyScaled(ex *Exec, c Matrix, a, b gemm.Scaled, accumulate bool) {
	if c.dtype == BF16 {
		gemm.MXToBF16(ex.packing(), c.gemmView(), a, b)
	} else {
		gemm.MX(ex.packing(), c.gemmView(), a, b, accumulate)
	}
}

func checkScaled(c Matrix, a, b Scaled) {
	if a.Codes.Cols != b.Codes.Cols || c.Rows != a.Codes.Rows || c.Cols != b.Codes.Rows {
		panic(fmt.Sprintf("tensor: product of [%d, %d] and [%d, %d]ᵀ into [%d, %d]",
			a.Codes.Rows, a.Codes.Cols, b.Codes.Rows, b.Codes.Cols, c.Rows, c.Cols))
	}
	a.check()
	b.check()
	c.checkRows()
}

func (s Scaled) check() {
	if s.Codes.dtype != UINT8 || s.Scales.dtype != UINT8 {
		panic(fmt.Sprintf("tensor: codes of %v with scales of %v, want uint8", s.Codes.dtype, s.Scales.dtype))
	}
	if blocks := (s.Codes.Cols + format.MXBlock - 1) / format.MXBlock; s.Scales.Rows != s.Codes.Rows || s.Scales.Cols != blocks {
		panic(fmt.Sprintf("tensor: codes [%d, %d] with scales [%d, %d], want scales [%d, %d]",
			s.Codes.Rows, s.Codes.Cols, s.Scales.Rows, s.Scales.Cols, s.Codes.Rows, blocks))
	}
}

func (s Scaled) gemmView() gemm.Scaled {
	return gemm.Scaled{Codes: s.Codes.gemmView(), Scales: s.Scales.gemmView(), Element: s.Element}
}
