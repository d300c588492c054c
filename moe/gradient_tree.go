package moe

import (
	"math/bits"

	"spmoe/tensor"
)

// gradientTree sums a weight's gradient from the contributions of sequences, or of groups of 2^i
// sequences, which come one after the other. It forms the balanced binary gradientTree that
// tensor.Wgrad documents, for a gradient that is not a single product.
type gradientTree struct {
	ex      *tensor.Exec
	weight  *weight
	grad    tensor.Tensor   // this rank's rows of the weight's gradient
	stores  bool            // the sum replaces grad; its memory is that of the first pending sum
	pending []tensor.Tensor // partial sums, the last ones over fewer contributions
	leaves  int             // number of expected contributions
	count   int             // number of contributions so far
	open    int             // pending sums in use
}

// newGradientTree returns a tree for the given number of contributions. Each is in the arena's
// memory unless it is the only one.
func newGradientTree(ex *tensor.Exec, w *weight, leaves int) gradientTree {
	t := gradientTree{ex: ex, weight: w, grad: w.own(), leaves: leaves}
	if leaves == 1 {
		return t
	}
	levels := bits.Len(uint(leaves-1)) + 1
	t.pending = make([]tensor.Tensor, 0, levels)
	if t.stores = w.stale; t.stores {
		t.weight.accumulate(ex)
		t.pending = append(t.pending, t.grad)
	}
	for len(t.pending) < levels {
		t.pending = append(t.pending, ex.New(tensor.FP32, t.grad.Dims()...))
	}
	return t
}

// next returns where to put the next contribution, and whether to add it there.
func (t *gradientTree) next() (to tensor.Tensor, accumulate bool) {
	if t.leaves == 1 {
		return t.grad, t.weight.accumulate(t.ex)
	}
	return t.pending[t.open], false
}

// push completes a contribution. The last one completes the gradient.
func (t *gradientTree) push() {
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
		if !t.stores {
			t.weight.accumulate(t.ex)
			add(t.ex, t.grad, t.pending[0])
		}
	}
}

func (t *gradientTree) merge() {
	t.open--
	add(t.ex, t.pending[t.open-1], t.pending[t.open])
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
