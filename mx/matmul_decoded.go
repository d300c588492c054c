package mx

// Products of decoded copies of both operands: any format, any tier.

import (
	"math"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// decoded multiplies decoded copies of the operands. The copies leave out the group scales. They
// are BF16 if BF16 holds every such element exactly and FP32 otherwise. The group scales multiply
// the FP32 sums.
type decoded struct{}

func (decoded) supports(Format, Format) bool { return true }

// continues excludes group scales, which multiply complete sums.
func (decoded) continues(a, b Format) bool { return !a.hasGain() && !b.hasGain() }

func (decoded) matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	p := decode(ex, x, w)
	defer p.release()
	sum := p.destination(y)
	tensor.MatMulTimes(ex, sum, p.a.Mat(), p.b.Mat().T(), p.scale())
	p.finish(y, sum)
}

func (decoded) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	p := decode(ex, dy, w)
	defer p.release()
	sum := p.destination(dx)
	tensor.MatMulTimes(ex, sum, p.a.Mat(), p.b.Mat(), p.scale())
	p.finish(dx, sum)
}

func (decoded) wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	p := decode(ex, dy, x)
	defer p.release()
	left := p.a.Mat().ColSlice(first, first+dw.Rows)
	if span == 0 && accumulate && !dy.Format.hasGain() && !x.Format.hasGain() {
		tensor.MatMulAdd(ex, dw, left.T(), p.b.Mat())
		return
	}
	if span == 0 {
		span = max(dy.Rows(), 1)
	}
	tensor.WgradTimes(ex, dw, left, p.b.Mat(), span, p.scale(), accumulate)
}

func (decoded) groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	p := decode(ex, x, w)
	defer p.release()
	sum := p.destination(y)
	tensor.GroupedMatMulTimes(ex, sum, p.a.Mat(), p.groups(len(ends)), ends, p.scales(len(ends)))
	p.finish(y, sum)
}

func (decoded) groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends []int32) {
	p := decode(ex, dy, w)
	defer p.release()
	sum := p.destination(dx)
	tensor.GroupedDgradTimes(ex, sum, p.a.Mat(), p.groups(len(ends)), ends, p.scales(len(ends)))
	p.finish(dx, sum)
}

func (decoded) groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	p := decode(ex, dy, x)
	defer p.release()
	tensor.GroupedWgradTimes(ex, dw, p.a.Mat(), p.b.Mat(), dy.Ends, p.scales(dw.Dim(0)), accumulate)
}

// decodedProduct is the state of one product.
type decodedProduct struct {
	ex       *tensor.Exec
	mark     tensor.Mark
	operands [2]Tensor
	a, b     tensor.Tensor // decoded, in the layout of the operands
	inBF16   bool          // a and b are BF16
}

// decode decodes two operands into scratch memory.
func decode(ex *tensor.Exec, a, b Tensor) decodedProduct {
	p := decodedProduct{ex: ex, mark: ex.Mark(), operands: [2]Tensor{a, b}, inBF16: a.Format.fitsBF16() && b.Format.fitsBF16()}
	dtype := tensor.FP32
	if p.inBF16 {
		dtype = tensor.BF16
	}
	p.a, p.b = decodedCopy(ex, dtype, a), decodedCopy(ex, dtype, b)
	return p
}

func (p *decodedProduct) release() { p.ex.Release(p.mark) }

// decodedCopy returns t without the group scales.
func decodedCopy(ex *tensor.Exec, dtype tensor.DType, t Tensor) tensor.Tensor {
	c := ex.New(dtype, t.Rows(), t.Cols())
	dequantizeGeneral(ex, c.Mat(), t, blockScales)
	return c
}

// fitsBF16 says whether BF16 holds the product of every element and block scale exactly. Products
// with E8M0 scales have few bits as well, but may leave the range. FP32 scales that are powers of
// two do not: the smallest is about leastAmax.
func (f Format) fitsBF16() bool {
	switch f.Scale {
	case ScaleE4M3:
		return !f.IsInteger() && f.Mantissa()+1+format.E4M3.Mantissa()+1 <= 8
	case ScalePow2, ScaleNone:
		return f.Bits() <= 8
	}
	return false
}

// groups returns b as the weights of n groups.
func (p *decodedProduct) groups(n int) tensor.Tensor {
	return p.b.Reshape(n, p.b.Dim(0)/max(n, 1), p.b.Dim(1))
}

// scaled says whether group scales multiply the sums.
func (p *decodedProduct) scaled() bool {
	return p.operands[0].hasGroupScale() || p.operands[1].hasGroupScale()
}

// scale returns the factor of the sums of operands in one group. It is 0 if there is none.
func (p *decodedProduct) scale() float32 {
	if !p.scaled() || p.ex.Dry() {
		return 0
	}
	return factor(productScale(p.operands, 0))
}

// factor returns scale as products take it. A scale that is rounded to 0 becomes the smallest
// number, because 0 stands for 1 there.
func factor(scale float32) float32 { return max(scale, math.SmallestNonzeroFloat32) }

// scales returns the factors of the sums of n groups. It is nil if there are none.
func (p *decodedProduct) scales(n int) []float32 {
	if !p.scaled() {
		return nil
	}
	all := p.ex.New(tensor.FP32, n).F32()
	if p.ex.Dry() {
		return nil
	}
	for g := range all {
		all[g] = factor(productScale(p.operands, g))
	}
	return all
}

// destination returns the matrix that receives the sums: y, or FP32 scratch memory if products of
// FP32 operands are to be rounded to BF16.
func (p *decodedProduct) destination(y tensor.Matrix) tensor.Matrix {
	if y.DType() == tensor.FP32 || p.inBF16 {
		return y
	}
	return p.ex.New(tensor.FP32, y.Rows, y.Cols).Mat()
}

// finish rounds the sums, unless they are y already.
func (p *decodedProduct) finish(y, sum tensor.Matrix) {
	if y != sum {
		tensor.Convert(p.ex, y, sum)
	}
}

// productScale returns the product of the group scales of two operands. An operand of one group has
// one scale for every g.
func productScale(operands [2]Tensor, g int) float32 {
	scale := float32(1)
	for _, t := range operands {
		if t.Ends == nil {
			scale *= t.GroupScale(0)
		} else {
			scale *= t.GroupScale(g)
		}
	}
	return scale
}
