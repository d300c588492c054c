package moe

import "spmoe/tensor"

// weight is what a layer multiplies by: one parameter, or several neighbours seen as one
// tensor (gate and up projection as one; all local experts as one).
type weight struct {
	W     tensor.Tensor // [N, K], or [groups, N, K]
	Grad  tensor.Tensor // FP32
	at    int           // where in the flat vectors of its group it begins
	stale bool          // Grad is of an earlier step: the first gradient of this one is stored, later ones are added to it
}

// accumulate says whether the next product is added to Grad. Stored it has the bits that adding it to zeros would give, but for zeros'
// signs: a sum of negative products that are too small for any number is -0.
func (w *weight) accumulate() bool {
	stale := w.stale
	w.stale = false
	return !stale
}

// sum returns Grad for what can only add to it.
func (w *weight) sum(ex *tensor.Exec) tensor.Tensor {
	if !w.accumulate() {
		tensor.Zero(ex, w.Grad)
	}
	return w.Grad
}

// linear is a linear layer without bias, or one for every group of rows (grouped GEMM): the
// forward product, and the two of the backward pass.
type linear struct {
	weight
	mx   *mxLinear   // nil: the products run in the type of W
	kept []wgradRows // of passes, for a gradient that is made of several: see gathering
}

// forward returns y = x·W[g]ᵀ in x's type for the rows of each group g: [rows, N]. x: [rows, K]; ends are
// the groups' end offsets, nil for one weight for all: the rows are then this rank's tokens, sequence after sequence.
func (l *linear) forward(p *pass, x tensor.Tensor, ends []int32) tensor.Tensor {
	if p.decoding.rowwise() {
		return l.rowwise(p, x, ends)
	}
	if l.mx == nil {
		return l.multiply(p.ex, x, ends)
	}
	y := l.output(p.ex, x)
	l.mx.forward(p, y.Mat(), x.Mat(), ends)
	return y
}

// multiply is forward for a weight that is not quantised.
func (l *linear) multiply(ex *tensor.Exec, x tensor.Tensor, ends []int32) tensor.Tensor {
	y := l.output(ex, x)
	if ends == nil {
		tensor.MatMul(ex, y.Mat(), x.Mat(), l.W.Mat().T())
	} else {
		tensor.GroupedMatMul(ex, y.Mat(), x.Mat(), l.W, ends)
	}
	return y
}

func (l *linear) output(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	return ex.New(x.DType(), x.Dim(0), l.W.Dim(-2))
}

// sharesInput says that in every pass the input of l is that of first, whose turn comes before. It is then quantised once.
func (l *linear) sharesInput(first *linear) {
	if l.mx != nil && first.mx != nil && l.mx.MX == first.mx.MX {
		l.mx.shared = first.mx
	}
}

// backward adds dyᵀ·x to W's gradient in this step and returns the gradient of x, dy·W[g]; x and ends
// as the last forward call had them. A group's rows have one order whatever the number of ranks, that of the tokens of all;
// without groups, sequences are summed one by one. The gradient of groups may have to wait for further passes.
func (l *linear) backward(p *pass, dy, x tensor.Tensor, ends []int32) tensor.Tensor {
	ex := p.ex
	dx := like(ex, x)
	switch {
	case l.mx != nil:
		l.mx.backward(p, dx.Mat(), &l.weight, dy.Mat(), x.Mat(), ends)
	case ends == nil:
		tensor.Wgrad(ex, l.Grad.Mat(), dy.Mat(), x.Mat(), p.batch.Seq, l.accumulate())
		tensor.MatMul(ex, dx.Mat(), dy.Mat(), l.W.Mat())
	default:
		if !p.gathers(ends) {
			tensor.GroupedWgrad(ex, l.Grad, dy.Mat(), x.Mat(), ends, l.accumulate())
		}
		tensor.GroupedDgrad(ex, dx.Mat(), dy.Mat(), l.W, ends)
	}
	if p.gathers(ends) {
		l.gather(p, wgradRows{dy, x, ends})
	}
	return dx
}

// like returns a new matrix of x's shape and type.
func like(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	return ex.New(x.DType(), x.Dim(0), x.Dim(1))
}
