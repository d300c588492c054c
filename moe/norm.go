package moe

import "spmoe/tensor"

// rmsNorm is a normalization layer, y = x·rstd·w with rstd = 1/sqrt(mean(x²) + eps) of each row.
type rmsNorm struct {
	weight weight // [n] FP32
	eps    float32
}

// normState is the state of a normalization layer in a pass.
type normState struct {
	x    tensor.Matrix
	rstd tensor.Tensor // [rows]
	dw   tensor.Tensor // [n] FP32: the gradient of the weight, of this pass only
}

func newNorm(b *builder, name string, n int, eps float64) *rmsNorm {
	l := &rmsNorm{eps: float32(eps)}
	b.norm(&l.weight, name, n)
	return l
}

// forward returns x normalized, in x's type and in the arena to. x must not change until the
// backward pass.
func (l *rmsNorm) forward(p phase, to *tensor.Arena, x tensor.Matrix, s *normState) tensor.Tensor {
	p.begin(Norms)
	y := to.New(x.DType(), x.Rows, x.Cols)
	s.x, s.rstd = x, p.saved.New(tensor.FP32, x.Rows)
	tensor.RMSNorm(p.ex, y.Mat(), s.rstd.F32(), x, l.weight.W.F32(), l.eps)
	return y
}

// backward writes the gradient of x to dx, or adds it there. It also sums the weight's gradient of
// this pass. backwardWeight adds that sum to those of other passes; a fused phase calls it at once.
func (l *rmsNorm) backward(p phase, dx, dy tensor.Matrix, addToDX bool, s *normState) {
	p.in(Norms)
	s.dw = p.saved.New(tensor.FP32, s.x.Cols)
	tensor.Zero(p.ex, s.dw)
	tensor.RMSNormBackward(p.ex, dx, s.dw.F32(), dy, s.x, l.weight.W.F32(), s.rstd.F32(), addToDX, p.batch.Seq)
	if p.fused {
		l.backwardWeight(p, s)
	}
}

func (l *rmsNorm) backwardWeight(p phase, s *normState) {
	add(p.ex, l.weight.sum(p.ex), s.dw)
	p.sealGrad(&l.weight)
}
