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
	pending []tensor.Tensor // partial sums, the last ones over fewer contributions
	leaves  int             // number of expected contributions
	count   int             // number of contributions so far
	open    int             // pending sums in use
}

// newGradientTree returns a tree for the given number of contributions. Each is in the arena's
// memory unless it is the only one.
func newGradientTree(ex *tensor.Exec, w *weight, leaves int) gradientTree {
	t := gradientTree{ex: ex, weight: w, leaves: leaves}
	if leaves > 1 {
		for range bits.Len(uint(leaves-1)) + 1 {
			t.pending = append(t.pending, ex.New(tensor.FP32, w.Grad.Dims()...))
		}
	}
	return t
}

// next returns where to put the next contribution, and whether to add it there.
func (t *gradientTree) next() (to tensor.Tensor, accumulate bool) {
	if t.leaves == 1 {
		return t.weight.Grad, t.weight.accumulate(t.ex)
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
		if grad, sum := t.weight.Grad, t.pending[0]; t.weight.accumulate(t.ex) {
			add(t.ex, grad, sum)
		} else {
			tensor.Convert(t.ex, grad.Mat(), sum.Mat())
		}
	}
}

func (t *gradientTree) merge() {
	t.open--
	add(t.ex, t.pending[t.open-1], t.pending[t.open])
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
