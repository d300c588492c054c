package mx

// The choice of an implementation for a product, and the parts of its operands.

import (
	"fmt"
	"math"

	"spmoe/tensor"
)

// A multiplier computes products of operands in some formats.
type multiplier interface {
	// continues says whether a gradient goes on with the sums in dw: see Sum.Continues.
	continues(a, b Format) bool
	// decode returns the elements of both operands as multiply takes them, in scratch memory.
	decode(ex *tensor.Exec, a, b Tensor) (x, y tensor.Matrix)
	// multiply computes c = a·bᵀ.
	multiply(p product, c tensor.Matrix, a, b part)
	// gradient computes the FP32 c = a·bᵀ, or adds it to c. It sums K in spans: see tensor.Wgrad. A
	// span of 0 covers all of K.
	gradient(p product, c tensor.Matrix, a, b part, span int, accumulate bool)
}

// multiplier returns the implementation for the formats of a and b. It is nil for those of OCP MX
// in FP32, which the kernels of package tensor multiply.
func (s Sum) multiplier(a, b Tensor) multiplier {
	if !a.Format.TransformsLike(b.Format) {
		panic(fmt.Sprintf("mx: a product of %v and %v: transform both operands alike or neither", a.Format, b.Format))
	}
	return s.multiplierOf(a.Format, b.Format)
}

func (s Sum) multiplierOf(a, b Format) multiplier {
	switch {
	case s == SumExact:
		return elementwise{}
	case s != SumFP32:
		return cores{s}
	case a.isMX() && b.isMX():
		return nil
	case a.promotes() && b.promotes() && a.Block[1] == b.Block[1] && (a.Scale == ScaleFP32 || b.Scale == ScaleFP32):
		return promoted{}
	}
	return decoded{}
}

// Continues reports whether GroupedWgrad, or MultiplyGroupsWgrad for zero Formats, goes on with the
// sums in dw if it accumulates. Several calls then have the bits of one call over all rows, if in
// all except the last one the groups have whole blocks of both formats and multiples of 32 rows.
// Otherwise dw is added to the sum over the rows of a call.
func (s Sum) Continues(a, b Format) bool {
	if !a.Quantizes() {
		return s == SumFP32
	}
	m := s.multiplierOf(a, b)
	return m == nil || m.continues(a, b)
}

// product is the state of one call.
type product struct {
	multiplier
	ex       *tensor.Exec
	mark     tensor.Mark
	operands [2]Tensor
	values   [2]tensor.Matrix // decoded, in the layout of the operands
}

func newProduct(ex *tensor.Exec, by multiplier, a, b Tensor) product {
	p := product{multiplier: by, ex: ex, mark: ex.Mark(), operands: [2]Tensor{a, b}}
	p.values[0], p.values[1] = by.decode(ex, a, b)
	return p
}

func (p *product) release() { p.ex.Release(p.mark) }

// A part is the rows or columns of an operand that belong to one group: [n, K].
type part struct {
	tensor.Matrix
	t     Tensor
	first int // row of t with which the group begins, if t is not divided into groups and has blocks along rows
	group int
}

// rows returns rows [lo, hi) of operand i, which are rows of group g, with blocks AlongRows.
func (p *product) rows(i, lo, hi, g int) part {
	return part{p.values[i].RowSlice(lo, hi), p.operands[i], lo, g}
}

// cols returns the columns of rows [lo, hi) of operand i, which are group g, with blocks AlongCols.
func (p *product) cols(i, lo, hi, g int) part {
	return part{p.values[i].RowSlice(lo, hi).T(), p.operands[i], 0, g}
}

// slice returns rows [lo, hi) of a part with blocks AlongCols.
func (p part) slice(lo, hi int) part {
	p.Matrix, p.first = p.RowSlice(lo, hi), lo
	return p
}

// scales returns the matrix that has the scales of a part, and the row or column of it with which
// the part begins.
func (p part) scales() (t Tensor, first int) {
	if p.t.Ends == nil {
		return p.t, p.first
	}
	if p.t.Blocks == AlongRows {
		p.first = 0
	}
	return p.t.Group(p.group), p.first
}

// scaleView returns the FP32 scales of a part by its rows.
func (p part) scaleView() tensor.ScaleView {
	t, first := p.scales()
	v := tensor.ScaleView{Values: t.Scales.F32(), First: first, Rows: t.Format.Block[0], RowStride: t.Scales.Dim(1), RunStride: 1}
	if t.Blocks == AlongCols {
		v.RowStride, v.RunStride = 1, v.RowStride
	}
	return v
}

// alpha returns the product of the group scales of two parts as products take it: 0 if there are
// none. A scale that is rounded to 0 becomes the smallest number.
func (p *product) alpha(a, b part) float32 {
	if p.ex.Dry() || !a.t.hasGroupScale() && !b.t.hasGroupScale() {
		return 0
	}
	return max(groupScales(a, b), math.SmallestNonzeroFloat32)
}

// groupScales returns the product of the group scales of two parts.
func groupScales(a, b part) float32 { return a.groupScale() * b.groupScale() }

// groupScale is the scale of a part's group. An operand of one group has one scale for all.
func (p part) groupScale() float32 {
	if p.t.Ends == nil {
		return p.t.GroupScale(0)
	}
	return p.t.GroupScale(p.group)
}
