package mx

// Products as the tensor cores of an H100 or a B200 add them.

import (
	"fmt"
	"unsafe"

	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/tensorcore"
)

// Plan returns how the GPU of a sum multiplies two formats. The zero Format stands for BF16.
func (s Sum) Plan(a, b Format) (p tensorcore.Plan, err error) {
	blocks := func(f Format) bool { return f.promotes() && f.Element == format.E4M3 && f.Block[1] == 128 }
	eight := func(f Format) bool { return f.isMX() && !f.IsInteger() }
	four := func(f Format) bool {
		return f.Quantizes() && f.Element == format.E2M1 && (f.Scale == ScaleE8M0 && f.Block[1] == 32 || f.Scale == ScaleE4M3 && f.Block[1] == 16)
	}
	whole := func(f Format) bool {
		return f.Scale == ScaleNone && (f.Element == format.E4M3 || f.Element == format.E5M2)
	}
	h100 := s == SumH100 || s == SumH100NoPromotion
	switch {
	case !a.Quantizes() && !b.Quantizes() && h100:
		return tensorcore.H100BF16, nil
	case !a.Quantizes() && !b.Quantizes():
		return tensorcore.B200BF16, nil
	case !a.Quantizes() || !b.Quantizes():
	case s == SumH100NoPromotion && blocks(a) && blocks(b):
		return p, fmt.Errorf("%v cannot multiply %v: a chain cannot cross from one scale to the next: use %v", s, a, SumH100)
	case s == SumH100NoPromotion && whole(a) && whole(b):
		return tensorcore.H100FastFP8, nil
	case h100 && (blocks(a) && blocks(b) || whole(a) && whole(b)):
		return tensorcore.H100FP8, nil
	case h100 && (a.isMX() || a.Scale == ScaleE4M3 || a.Packed):
		return p, fmt.Errorf("%v cannot multiply %v: an H100 has no block scales: use %v", s, a, SumB200)
	case !h100 && four(a) && four(b) && a.Scale == b.Scale:
		return tensorcore.B200FP4, nil
	case !h100 && (eight(a) && eight(b) || whole(a) && whole(b)):
		return tensorcore.B200FP8, nil
	}
	return p, fmt.Errorf("%v cannot multiply %v and %v", s, a, b)
}

// Multiplies returns an error if the GPU of a sum has no product of two formats. The zero Format
// stands for BF16.
func (s Sum) Multiplies(a, b Format) error {
	if !s.OfGPU() {
		return nil
	}
	_, err := s.Plan(a, b)
	return err
}

// Model says whether products of two formats rest on a published model of the GPU, and have not
// been compared with one.
func (s Sum) Model(a, b Format) bool {
	p, err := s.Plan(a, b)
	return err == nil && p.Model
}

// cores multiplies as the GPU of a sum does.
type cores struct{ sum Sum }

func (c cores) supports(a, b Format) bool { return c.sum.Multiplies(a, b) == nil }
func (cores) continues(_, _ Format) bool  { return false }

func (c cores) matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	p := c.product(ex, x, w)
	defer p.release()
	p.multiply(y, p.rows(0, 0, y.Rows, 0), p.rows(1, 0, y.Cols, 0), 0, 0, false)
}

func (c cores) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	p := c.product(ex, dy, w)
	defer p.release()
	p.multiply(dx, p.rows(0, 0, dx.Rows, 0), p.cols(1, 0, w.Rows(), 0), 0, 0, false)
}

func (c cores) wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	p := c.product(ex, dy, x)
	defer p.release()
	left := p.cols(0, 0, dy.Rows(), 0).RowSlice(first, first+dw.Rows)
	p.multiply(dw, left, p.cols(1, 0, x.Rows(), 0), 0, span, accumulate)
}

func (c cores) groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	p := c.product(ex, x, w)
	defer p.release()
	for g := range ends {
		lo, hi := group(ends, g)
		p.multiply(y.RowSlice(lo, hi), p.rows(0, lo, hi, g), p.rows(1, g*y.Cols, (g+1)*y.Cols, g), g, 0, false)
	}
}

func (c cores) groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32) {
	p := c.product(ex, dy, w)
	defer p.release()
	n := dy.Cols()
	for g := range ends {
		lo, hi := group(ends, g)
		p.multiply(dx.RowSlice(lo, hi), p.rows(0, lo, hi, g), p.cols(1, g*n, (g+1)*n, g), g, 0, false)
	}
}

func (c cores) groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	p := c.product(ex, dy, x)
	defer p.release()
	for g := range dy.Ends {
		lo, hi := group(dy.Ends, g)
		p.multiply(dw.Index(g).Mat(), p.cols(0, lo, hi, g), p.cols(1, lo, hi, g), g, 0, accumulate)
	}
}

// coreProduct is the state of one product.
type coreProduct struct {
	ex       *tensor.Exec
	mark     tensor.Mark
	plan     tensorcore.Plan
	operands [2]Tensor
	values   [2]tensor.Matrix // decoded, in the layout of the operands
}

func (c cores) product(ex *tensor.Exec, a, b Tensor) coreProduct {
	p := coreProduct{ex: ex, mark: ex.Mark(), operands: [2]Tensor{a, b}}
	var err error
	if p.plan, err = c.sum.Plan(a.Format, b.Format); err != nil {
		panic("mx: " + err.Error())
	}
	for i, t := range p.operands {
		p.values[i] = coreValues(ex, t)
	}
	return p
}

// coreValues returns the elements of t as tensor cores get them: times block scales only if these
// are powers of two that belong to elements.
func coreValues(ex *tensor.Exec, t Tensor) tensor.Matrix {
	if !t.Format.isMX() || t.Format.Element == format.E2M1 {
		return elementsOf(ex, t)
	}
	return decodedCopy(ex, tensor.FP32, t).Mat()
}

func (p *coreProduct) release() { p.ex.Release(p.mark) }

// multiply computes c = a·bᵀ for operands of group g.
func (p *coreProduct) multiply(c tensor.Matrix, a, b tensor.CoreOperand, g, span int, accumulate bool) {
	sum := tensor.CoreSum{Plan: p.plan, Span: span, Accumulate: accumulate}
	if (p.operands[0].hasGroupScale() || p.operands[1].hasGroupScale()) && !p.ex.Dry() {
		sum.Alpha = factor(productScale(p.operands, g))
	}
	tensor.CoreMatMul(p.ex, c, a, b, sum)
}

// rows returns rows [lo, hi) of operand i, which are rows of group g, with blocks AlongRows.
func (p *coreProduct) rows(i, lo, hi, g int) tensor.CoreOperand {
	return p.operand(i, p.values[i].RowSlice(lo, hi), lo, g)
}

// cols returns the columns of rows [lo, hi) of operand i, which are group g, with blocks AlongCols.
func (p *coreProduct) cols(i, lo, hi, g int) tensor.CoreOperand {
	return p.operand(i, p.values[i].RowSlice(lo, hi).T(), 0, g)
}

func (p *coreProduct) operand(i int, values tensor.Matrix, row, g int) tensor.CoreOperand {
	t := p.operands[i]
	return tensor.CoreOperand{Matrix: values, Least: t.Format.MinExponent(), Scales: t.coreScales(row, g)}
}

// coreScales returns the scales of group g, which begins with the given row if t is not divided
// into groups.
func (t Tensor) coreScales(row, g int) tensorcore.BlockScales {
	if t.Format.Scale == ScaleNone {
		return tensorcore.BlockScales{}
	}
	if t.Ends != nil {
		t, row = t.Group(g), 0
	}
	s := tensorcore.BlockScales{Type: tensorcore.ScaleE8M0, RowStride: t.Scales.Dim(1), RunStride: 1, Run: t.Format.Block[1], Rows: t.Format.Block[0], First: row}
	switch {
	case t.Format.Scale == ScaleE4M3:
		s.Type = tensorcore.ScaleE4M3
	case t.Format.Scale.dtype() == tensor.FP32:
		s.Type = tensorcore.ScaleFP32
	}
	if t.Blocks == AlongCols {
		s.First, s.RowStride, s.RunStride = 0, 1, s.RowStride
	}
	s.Data = unsafe.Pointer(unsafe.SliceData(t.Scales.Bytes()))
	return s
}
