package moe

import "spmoe/tensor"

// The linear layer: a weight, its gradient and its three products.

// weight is what a layer multiplies by: one parameter, or several neighbours seen as one
// tensor (gate and up projection as one; all local experts as one).
type weight struct {
	W    tensor.Tensor
	Grad tensor.Tensor
}

// forward computes y = x·Wᵀ.
func (w *weight) forward(ex *tensor.Exec, y, x tensor.Matrix) {
	tensor.MatMul(ex, y, x, w.W.Mat().T())
}

// dgrad computes dx = dy·W.
func (w *weight) dgrad(ex *tensor.Exec, dx, dy tensor.Matrix) {
	tensor.MatMul(ex, dx, dy, w.W.Mat())
}

// wgrad adds dyᵀ·x to the weight's gradient.
func (w *weight) wgrad(ex *tensor.Exec, dy, x tensor.Matrix) {
	tensor.MatMulAdd(ex, w.Grad.Mat(), dy.T(), x)
}

// linear returns x·Wᵀ in x's type.
func linear(ex *tensor.Exec, w *weight, x tensor.Tensor) tensor.Tensor {
	y := ex.New(x.DType(), x.Dim(0), w.W.Dim(0))
	w.forward(ex, y.Mat(), x.Mat())
	return y
}

// linearBackward adds to W's gradient and returns that of x.
func linearBackward(ex *tensor.Exec, w *weight, dy, x tensor.Tensor) tensor.Tensor {
	w.wgrad(ex, dy.Mat(), x.Mat())
	dx := like(ex, x)
	w.dgrad(ex, dx.Mat(), dy.Mat())
	return dx
}

// like returns a new matrix of x's shape and type.
func like(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	return ex.New(x.DType(), x.Dim(0), x.Dim(1))
}
