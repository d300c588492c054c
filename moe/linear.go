package moe

import "spmoe/tensor"

// weight is what a layer multiplies by: one parameter, or several neighbours seen as one
// tensor (gate and up projection as one; all local experts as one).
type weight struct {
	W    tensor.Tensor // [N, K], or [groups, N, K]
	Grad tensor.Tensor // FP32, added to by backward passes
}

// linear is a linear layer without bias, or one for every group of rows (grouped GEMM): the
// forward product, and the two of the backward pass.
type linear struct {
	weight
	mx *quantised // nil: the products run in the type of W
}

// forward returns y = x·W[g]ᵀ in x's type for the rows of each group g: [rows, N]. x: [rows, K]; ends are
// the groups' end offsets, nil for a weight without groups.
func (l *linear) forward(ex *tensor.Exec, x tensor.Tensor, ends []int32) tensor.Tensor {
	y := ex.New(x.DType(), x.Dim(0), l.W.Dim(-2))
	switch {
	case l.mx != nil:
		l.mx.forward(ex, y.Mat(), x.Mat(), ends)
	case ends == nil:
		tensor.MatMul(ex, y.Mat(), x.Mat(), l.W.Mat().T())
	default:
		tensor.GroupedMatMul(ex, y.Mat(), x.Mat(), l.W, ends)
	}
	return y
}

// backward adds dyᵀ·x to W's gradient and returns the gradient of x, dy·W[g]; x and ends as
// the last forward call had them.
func (l *linear) backward(ex *tensor.Exec, dy, x tensor.Tensor, ends []int32) tensor.Tensor {
	dx := like(ex, x)
	switch {
	case l.mx != nil:
		l.mx.backward(ex, dx.Mat(), l.Grad, dy.Mat(), x.Mat(), ends)
	case ends == nil:
		tensor.MatMulAdd(ex, l.Grad.Mat(), dy.Mat().T(), x.Mat())
		tensor.MatMul(ex, dx.Mat(), dy.Mat(), l.W.Mat())
	default:
		tensor.GroupedWgrad(ex, l.Grad, dy.Mat(), x.Mat(), ends)
		tensor.GroupedDgrad(ex, dx.Mat(), dy.Mat(), l.W, ends)
	}
	return dx
}

// like returns a new matrix of x's shape and type.
func like(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	return ex.New(x.DType(), x.Dim(0), x.Dim(1))
}
