package moe

import "spmoe/tensor"

// rmsNorm is a normalisation layer and what it keeps for the backward pass.
type rmsNorm struct {
	weight weight // [n] FP32
	eps    float32

	x    tensor.Matrix
	rstd tensor.Tensor // [rows]
}

func newNorm(b *builder, name string, n int, eps float64) *rmsNorm {
	l := &rmsNorm{eps: float32(eps)}
	b.norm(&l.weight, name, n)
	return l
}

// forward returns x normalised, in x's type. x must stay as it is until the backward pass.
func (l *rmsNorm) forward(ex *tensor.Exec, x tensor.Matrix) tensor.Tensor {
	y := ex.New(x.DType(), x.Rows, x.Cols)
	l.x, l.rstd = x, ex.New(tensor.FP32, x.Rows)
	tensor.RMSNorm(ex, y.Mat(), l.rstd.F32(), x, l.weight.W.F32(), l.eps)
	return y
}

// within is forward of a norm inside a block: the result is brief.
func (l *rmsNorm) within(p *pass, x tensor.Matrix) tensor.Tensor {
	defer p.brief(p.brief(true))
	return l.forward(p.ex, x)
}

// again is the last forward pass once more.
func (l *rmsNorm) again(ex *tensor.Exec) tensor.Tensor { return l.forward(ex, l.x) }

// backward writes the gradient of x to dx, or adds it there.
func (l *rmsNorm) backward(p *pass, dx, dy tensor.Matrix, addToDX bool) {
	tensor.RMSNormBackward(p.ex, dx, l.weight.sum(p.ex).F32(), dy, l.x, l.weight.W.F32(), l.rstd.F32(), addToDX, p.batch.Seq)
}
