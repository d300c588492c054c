package mx

// The choice of an implementation for a product.

import (
	"fmt"

	"spmoe/tensor"
)

// A multiplier computes products of operands in some formats. The caller has checked the shapes.
// The operands have the layout that the functions of the same names in matmul.go require.
type multiplier interface {
	// supports says whether it multiplies operands in these formats.
	supports(a, b Format) bool
	// continues says whether groupedWgrad goes on with the sums in dw: see Sum.Continues.
	continues(a, b Format) bool

	matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor)
	dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor)
	// wgrad computes the rows of the gradient from row first on. It sums the rows of dy and x in
	// spans: see tensor.Wgrad. A span of 0 covers all rows.
	wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool)

	groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32)
	groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32)
	groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool)
}

// multipliers lists the implementations that add in FP32, the fastest first. The last one takes
// every format.
var multipliers = []multiplier{blockScaled{}, promoted{}, decoded{}}

// multiplier returns the first implementation for the formats of a and b.
func (s Sum) multiplier(a, b Tensor) multiplier {
	if !a.Format.TransformsLike(b.Format) {
		panic(fmt.Sprintf("mx: a product of %v and %v: transform both operands alike or neither", a.Format, b.Format))
	}
	return s.multiplierOf(a.Format, b.Format)
}

func (s Sum) multiplierOf(a, b Format) multiplier {
	switch s {
	case SumExact:
		return elementwise{}
	case SumFP32:
	default:
		return cores{s}
	}
	for _, m := range multipliers {
		if m.supports(a, b) {
			return m
		}
	}
	panic("mx: nothing multiplies " + a.Name + " and " + b.Name)
}

// Continues reports whether GroupedWgrad, or MultiplyGroupsWgrad for zero Formats, goes on with the
// sums in dw if it accumulates. Several calls then have the bits of one call over all rows, if in
// all except the last one the groups have whole blocks of both formats and multiples of 32 rows.
// Otherwise dw is added to the sum over the rows of a call.
func (s Sum) Continues(a, b Format) bool {
	if !a.Quantizes() {
		return s == SumFP32
	}
	return s.multiplierOf(a, b).continues(a, b)
}

// blockScaled multiplies the formats of OCP MX by the kernels of package tensor.
type blockScaled struct{}

func (blockScaled) supports(a, b Format) bool  { return a.isMX() && b.isMX() }
func (blockScaled) continues(_, _ Format) bool { return true }

func (blockScaled) matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	tensor.MatMulScaled(ex, y, x.Operand(), w.Operand())
}

func (blockScaled) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	tensor.MatMulScaled(ex, dx, dy.Operand(), w.Operand())
}

func (blockScaled) wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	left := dy.Operand().RowSlice(first, first+dw.Rows)
	switch {
	case span > 0:
		tensor.MatMulScaledSpans(ex, dw, left, x.Operand(), span, accumulate)
	case accumulate:
		tensor.MatMulScaledAdd(ex, dw, left, x.Operand())
	default:
		tensor.MatMulScaled(ex, dw, left, x.Operand())
	}
}

func (blockScaled) groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	tensor.GroupedMatMulScaled(ex, y, x.Operand(), w.Operand(), ends)
}

func (blockScaled) groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32) {
	tensor.GroupedDgradScaled(ex, dx, dy.Operand(), w.stored(), ends)
}

func (blockScaled) groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	tensor.GroupedWgradScaled(ex, dw, dy.stored(), x.stored(), dy.Ends, accumulate)
}
