package moe

import "spmoe/tensor"

// rmsNorm is a normalization layer, y = x·rstd·w with rstd = 1/sqrt(mean(x²) + eps) of each row.
type rmsNorm struct {
	weight weight // [n] FP32
	eps    float32
	heads  int  // rows per token
	tokens int  // of a row, if there is one for several; 0: 1
	plain  bool // the weight is 1 and does not train
}

// normState is the state of a normalization layer in a pass.
type normState struct {
	x    tensor.Matrix // [rows, n]
	rstd tensor.Tensor // [rows]
	dw   tensor.Tensor // [n] FP32: the gradient of the weight, of this pass only
}

func newNorm(b *builder, name string, n int, eps float64) *rmsNorm {
	return newHeadNorm(b, name, 1, n, eps)
}

// newHeadNorm returns a layer that normalizes each of some heads of n elements.
func newHeadNorm(b *builder, name string, heads, n int, eps float64) *rmsNorm {
	l := &rmsNorm{eps: float32(eps), heads: heads}
	b.add(b.norms, &l.weight, Norms, []int{n}, &Param{Name: name + ".weight", Dims: []int{n}, Init: Init{Kind: Constant, Value: 1}})
	return l
}

// newPlainNorm returns a layer without a weight.
func newPlainNorm(heads, n int, eps float64) *rmsNorm {
	l := &rmsNorm{eps: float32(eps), heads: heads, plain: true}
	l.weight.W = tensor.New(tensor.FP32, n)
	for i := range n {
		l.weight.W.F32()[i] = 1
	}
	return l
}

// span returns the rows of a sequence.
func (l *rmsNorm) span(seq int) int { return max(seq*l.heads/max(l.tokens, 1), 1) }

// forwardHeads normalizes the heads of x, [tokens, heads·n], in cheap memory. A nil layer returns
// x.
func (l *rmsNorm) forwardHeads(p phase, x tensor.Tensor, s *normState) tensor.Tensor {
	if l == nil {
		return x
	}
	return l.forward(p, p.cheap, l.rows(x), s).Reshape(x.Dim(0), x.Dim(1))
}

// backwardHeads replaces the gradient of the output of forwardHeads by that of its input.
func (l *rmsNorm) backwardHeads(p phase, dy tensor.Tensor, s *normState) {
	if l != nil {
		l.backward(p, l.rows(dy), l.rows(dy), false, s)
	}
}

// rows views the heads of x as rows.
func (l *rmsNorm) rows(x tensor.Tensor) tensor.Matrix {
	return x.Reshape(x.Dim(0)*l.heads, x.Dim(1)/l.heads).Mat()
}

// forward returns x normalized, in x's type and in the arena to. x must not change until the
// backward pass.
func (l *rmsNorm) forward(p phase, to *tensor.Arena, x tensor.Matrix, s *normState) tensor.Tensor {
	p.in(Norms)
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
	p.normBackward(dx, s.dw.F32(), dy, s.x, l.weight.W.F32(), s.rstd.F32(), addToDX, l.span(p.batch.Seq))
	if p.fused {
		l.backwardWeight(p, s)
	}
}

func (l *rmsNorm) backwardWeight(p phase, s *normState) {
	if l.plain {
		return
	}
	add(p.ex, l.weight.addGrad(p), s.dw)
	p.pushGrad(&l.weight)
}
