package mx

// Products of decoded copies of both operands: any format, any tier.

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// decoded multiplies decoded copies of the operands. The copies leave out the group scales. They
// are BF16 if BF16 holds every such element exactly and FP32 otherwise. The group scales multiply
// the FP32 sums.
type decoded struct{}

func (decoded) supports(Format, Format) bool { return true }

func (decoded) matMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor) {
	p := decode(ex, x, w)
	defer p.release()
	sum := p.destination(y)
	tensor.MatMul(ex, sum, p.a.Mat(), p.b.Mat().T())
	p.finish(y, sum, nil, false)
}

func (decoded) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor) {
	p := decode(ex, dy, w)
	defer p.release()
	sum := p.destination(dx)
	tensor.MatMul(ex, sum, p.a.Mat(), p.b.Mat())
	p.finish(dx, sum, nil, false)
}

func (decoded) wgrad(ex *tensor.Exec, dw tensor.Matrix, dy, x Tensor, first, span int, accumulate bool) {
	p := decode(ex, dy, x)
	defer p.release()
	if span == 0 {
		span = max(dy.Rows(), 1)
	}
	sum := p.destination(dw)
	tensor.Wgrad(ex, sum, p.a.Mat().ColSlice(first, first+dw.Rows), p.b.Mat(), span, accumulate && !p.scaled())
	p.finish(dw, sum, nil, accumulate)
}

func (decoded) groupedMatMul(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends, whole []int32) {
	p := decode(ex, x, w)
	defer p.release()
	sum := p.destination(y)
	tensor.GroupedMatMul(ex, sum, p.a.Mat(), p.groups(len(ends)), ends, whole)
	p.finish(y, sum, ends, false)
}

func (decoded) groupedDgrad(ex *tensor.Exec, dx tensor.Matrix, dy, w Tensor, ends, whole []int32) {
	p := decode(ex, dy, w)
	defer p.release()
	sum := p.destination(dx)
	tensor.GroupedDgrad(ex, sum, p.a.Mat(), p.groups(len(ends)), ends, whole)
	p.finish(dx, sum, ends, false)
}

func (decoded) groupedWgrad(ex *tensor.Exec, dw tensor.Tensor, dy, x Tensor, accumulate bool) {
	p := decode(ex, dy, x)
	defer p.release()
	sum := dw
	if p.destination(dw.Mat()) != dw.Mat() {
		sum = p.scratch.Reshape(dw.Dims()...)
	}
	tensor.GroupedWgrad(ex, sum, p.a.Mat(), p.b.Mat(), dy.Ends, accumulate && !p.scaled())
	p.finish(dw.Mat(), sum.Mat(), EqualGroups(dw.Dim(0), dw.Dim(1)), accumulate)
}

// decodedProduct is the state of one product.
type decodedProduct struct {
	ex       *tensor.Exec
	mark     tensor.Mark
	operands [2]Tensor
	a, b     tensor.Tensor // decoded, in the layout of the operands
	inBF16   bool          // a and b are BF16
	scratch  tensor.Tensor // see destination
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
	dequantizeGeneral(ex, c.Mat(), t, false)
	return c
}

// fitsBF16 says whether BF16 holds the product of every element and block scale exactly. Products
// with E8M0 scales have few bits as well, but may leave the range.
func (f Format) fitsBF16() bool {
	return f.Scale == ScaleE4M3 && !f.IsInteger() && f.Mantissa()+1+format.E4M3.Mantissa()+1 <= 8
}

// groups returns b as the weights of n groups.
func (p *decodedProduct) groups(n int) tensor.Tensor {
	return p.b.Reshape(n, p.b.Dim(0)/max(n, 1), p.b.Dim(1))
}

// scaled says whether group scales multiply the sums.
func (p *decodedProduct) scaled() bool {
	return p.operands[0].hasGroupScale() || p.operands[1].hasGroupScale()
}

// destination returns the matrix that receives the sums. It is y if the sums need no further step.
// Otherwise it is FP32 scratch memory.
func (p *decodedProduct) destination(y tensor.Matrix) tensor.Matrix {
	if !p.scaled() && (y.DType() == tensor.FP32 || p.inBF16) {
		return y
	}
	p.scratch = p.ex.New(tensor.FP32, y.Rows, y.Cols)
	return p.scratch.Mat()
}

// finish multiplies the sums by the group scales and stores or adds them. The rows of group g end
// at ends[g]. Nil means one group.
func (p *decodedProduct) finish(y, sum tensor.Matrix, ends []int32, accumulate bool) {
	if y == sum {
		return
	}
	if p.scaled() {
		p.scaleGroups(ends)
	}
	if accumulate {
		tensor.Add(p.ex, y, y, sum)
	} else {
		tensor.Convert(p.ex, y, sum)
	}
}

func (p *decodedProduct) scaleGroups(ends []int32) {
	if ends == nil {
		ends = []int32{int32(p.scratch.Dim(0))}
	}
	for g := range ends {
		lo, hi := group(ends, g)
		sums := p.scratch.Slice(lo, hi).F32()
		tensor.Scale(sums, productScale(p.operands, g), sums)
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
