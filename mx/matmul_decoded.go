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

// continues excludes group scales, which multiply complete sums.
func (decoded) continues(a, b Format) bool { return !a.hasGain() && !b.hasGain() }

func (decoded) decode(ex *tensor.Exec, a, b Tensor) (x, y tensor.Matrix) {
	dtype := tensor.FP32
	if a.Format.fitsBF16() && b.Format.fitsBF16() {
		dtype = tensor.BF16
	}
	return decodedCopy(ex, dtype, a), decodedCopy(ex, dtype, b)
}

// decodedCopy returns t without the group scales.
func decodedCopy(ex *tensor.Exec, dtype tensor.DType, t Tensor) tensor.Matrix {
	c := ex.New(dtype, t.Rows(), t.Cols()).Mat()
	dequantizeGeneral(ex, c, t, blockScales)
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

// multiply rounds the sums of FP32 copies in scratch memory if c is BF16.
func (decoded) multiply(p product, c tensor.Matrix, a, b part) {
	sum := c
	if c.DType() != a.DType() && a.DType() == tensor.FP32 {
		sum = p.ex.New(tensor.FP32, c.Rows, c.Cols).Mat()
	}
	tensor.MatMulTimes(p.ex, sum, a.Matrix, b.T(), p.alpha(a, b))
	if sum != c {
		tensor.Convert(p.ex, c, sum)
	}
}

func (d decoded) gradient(p product, c tensor.Matrix, a, b part, span int, accumulate bool) {
	if span == 0 && accumulate && d.continues(a.t.Format, b.t.Format) {
		tensor.MatMulAdd(p.ex, c, a.Matrix, b.T())
		return
	}
	if span == 0 {
		span = max(a.Cols, 1)
	}
	tensor.WgradTimes(p.ex, c, a.T(), b.T(), span, p.alpha(a, b), accumulate)
}
