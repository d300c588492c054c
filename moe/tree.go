package moe

import (
	"math/bits"

	"spmoe/tensor"
)

// tree makes a weight's gradient of what sequences, or groups of 2^i of them, contribute one after
// the other: as the balanced binary tree that tensor.Wgrad documents, for a gradient that no single
// product gives.
type tree struct {
	ex      *tensor.Exec
	weight  *weight
	pending []tensor.Tensor // sums, the last ones of fewer contributions
	leaves  int             // contributions that are to come
	count   int             // that have come
	open    int             // pending sums in use
}

// newTree expects this many contributions, each in the arena's memory unless it is the only one.
func newTree(ex *tensor.Exec, w *weight, leaves int) tree {
	t := tree{ex: ex, weight: w, leaves: leaves}
	if leaves > 1 {
		for range bits.Len(uint(leaves-1)) + 1 {
			t.pending = append(t.pending, ex.New(tensor.FP32, w.Grad.Dims()...))
		}
	}
	return t
}

// next is where the next contribution goes, and whether it is added there.
func (t *tree) next() (to tensor.Tensor, accumulate bool) {
	if t.leaves == 1 {
		return t.weight.Grad, t.weight.accumulate()
	}
	return t.pending[t.open], false
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
		if grad, sum := t.weight.Grad, t.pending[0]; t.weight.accumulate() {
			add(t.ex, grad, sum)
		} else {
			tensor.Convert(t.ex, grad.Mat(), sum.Mat())
		}
	}
}

func (t *tree) merge() {
	t.open--
	add(t.ex, t.pending[t.open-1], t.pending[t.open])
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
