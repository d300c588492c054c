package mx

// Products in FP8 with FP32 scales, as in DeepSeek-V3: BF16 holds the codes, and the FP32 sum over
// each block is scaled and added.

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// promoted multiplies formats whose elements are exact in BF16 and whose blocks have FP32 scales.
// Both operands must have blocks of the same length.
type promoted struct{}

func (promoted) supports(a, b Format) bool {
	return a.promotes() && b.promotes() && a.Block[1] == b.Block[1] && (a.Scale == ScaleFP32 || b.Scale == ScaleFP32)
}

// promotes says whether promoted takes the format. Blocks of whole tiles of AMX are required.
func (f Format) promotes() bool {
	return f.Scale.dtype() == tensor.FP32 && f.Block[1]%format.MXBlock == 0 && !f.IsInteger() && !f.hasGain()
}

// hasGain says whether group scales or a constant multiply the elements.
func (f Format) hasGain() bool { return f.TensorScale || f.Shrink }

// continues is false: the scaled sums of runs are complete before they are added to the result.
func (promoted) continues(_, _ Format) bool { return false }

func (promoted) matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	p := promote(ex, x, w)
	defer p.release()
	tensor.MatMulPromoted(ex, y, p.a, p.b.T(), p.scales(0, 0, 0))
}

func (promoted) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	p := promote(ex, dy, w)
	defer p.release()
	tensor.MatMulPromoted(ex, dx, p.a, p.b, p.scales(0, 0, 0))
}

func (promoted) wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	p := promote(ex, dy, x)
	defer p.release()
	if span == 0 {
		span = max(dy.Rows(), 1)
	}
	scales := p.scales(0, 0, 0)
	scales.A.First = first
	tensor.WgradPromoted(ex, dw, p.a.ColSlice(first, first+dw.Rows), p.b, scales, span, accumulate)
}

func (promoted) groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	p := promote(ex, x, w)
	defer p.release()
	for g := range ends {
		lo, hi := group(ends, g)
		tensor.MatMulPromoted(ex, y.RowSlice(lo, hi), p.a.RowSlice(lo, hi), p.b.RowSlice(g*y.Cols, (g+1)*y.Cols).T(), p.scales(lo, g*y.Cols, g))
	}
}

func (promoted) groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32) {
	p := promote(ex, dy, w)
	defer p.release()
	for g := range ends {
		lo, hi := group(ends, g)
		tensor.MatMulPromoted(ex, dx.RowSlice(lo, hi), p.a.RowSlice(lo, hi), p.b.RowSlice(g*p.a.Cols, (g+1)*p.a.Cols), p.scales(lo, 0, g))
	}
}

func (promoted) groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	p := promote(ex, dy, x)
	defer p.release()
	for g := range dy.Ends {
		lo, hi := group(dy.Ends, g)
		tensor.WgradPromoted(ex, dw.Index(g).Mat(), p.a.RowSlice(lo, hi), p.b.RowSlice(lo, hi), p.scales(0, 0, g), max(hi-lo, 1), accumulate)
	}
}

// promotedProduct is the state of one product.
type promotedProduct struct {
	ex       *tensor.Exec
	mark     tensor.Mark
	operands [2]Tensor
	a, b     tensor.Matrix // codes as BF16 numbers
}

func promote(ex *tensor.Exec, a, b Tensor) promotedProduct {
	p := promotedProduct{ex: ex, mark: ex.Mark(), operands: [2]Tensor{a, b}}
	p.a, p.b = elementsOf(ex, a), elementsOf(ex, b)
	return p
}

func (p *promotedProduct) release() { p.ex.Release(p.mark) }

// elementsOf returns the elements of t without their scales. It is NaN in blocks with a NaN scale,
// because their codes are.
func elementsOf(ex *tensor.Exec, t Tensor) tensor.Matrix {
	c := ex.New(tensor.BF16, t.Rows(), t.Cols()).Mat()
	dequantizeGeneral(ex, c, t, noScales)
	return c
}

// scales returns the scales of group g, which begins with the given rows of the operands.
func (p *promotedProduct) scales(aRow, bRow, g int) tensor.BlockScales {
	return tensor.BlockScales{Run: p.operands[0].Format.Block[1], A: p.operands[0].scaleView(aRow, g), B: p.operands[1].scaleView(bRow, g)}
}

// scaleView returns the scales of an operand by its rows if it has blocks AlongRows and by its
// columns otherwise. row is the first row of group g if the operand is not divided into groups.
func (t Tensor) scaleView(row, g int) tensor.ScaleView {
	perRow, height := t.Scales.Dim(1), t.Format.Block[0]
	if t.Ends != nil {
		t, row = t.Group(g), 0
	}
	v := tensor.ScaleView{Values: t.Scales.F32(), First: row, Rows: height, RowStride: perRow, RunStride: 1}
	if t.Blocks == AlongCols {
		v.First, v.RowStride, v.RunStride = 0, 1, perRow
	}
	return v
}
