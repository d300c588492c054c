package moe

import (
	"math/bits"

	"spmoe/tensor"
)

// tree adds to a gradient what sequences, or groups of 2^i of them, contribute one after the other, as the balanced binary tree that
// tensor.Wgrad documents: for a gradient that no single product gives.
type tree struct {
	ex      *tensor.Exec
	grad    tensor.Tensor
	pending []tensor.Tensor // sums, the last ones of fewer contributions
	leaves  int             // contributions that are to come
	count   int             // that have come
	open    int             // pending sums in use
}

// newTree expects this many contributions, each in the arena's memory unless it is the only one.
func newTree(ex *tensor.Exec, grad tensor.Tensor, leaves int) *tree {
	t := &tree{ex: ex, grad: grad, leaves: leaves}
	if leaves > 1 {
		for range bits.Len(uint(leaves-1)) + 1 {
			t.pending = append(t.pending, ex.New(tensor.FP32, grad.Dims()...))
		}
	}
	return t
}

// next is what the next contribution is to be added to.
func (t *tree) next() tensor.Tensor {
	if t.leaves == 1 {
		return t.grad
	}
	t.pending[t.open].Zero()
	return t.pending[t.open]
}

// push says that the contribution is complete; with the last one, the gradient is.
func (t *tree) push() {
	t.count++
	if t.leaves == 1 {
		return
	}
	t.open++
	for n := t.count; n%2 == 0; n /= 2 {
		t.merge()
	}
	if t.count == t.leaves {
		for t.open > 1 {
			t.merge()
		}
		add(t.ex, t.grad, t.pending[0])
	}
}

func (t *tree) merge() {
	t.open--
	add(t.ex, t.pending[t.open-1], t.pending[t.open])
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
