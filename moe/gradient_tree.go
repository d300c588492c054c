package moe

import "spmoe/tensor"

// gradientTree sums the gradients of a weight, of sequences, groups of 2^i sequences, or ranks,
// which come one after the other. It forms the balanced binary tree that tensor.Wgrad documents,
// for a gradient that is not a single product.
//
// Partial sums are as large as the result. To need few, the first is in the result's memory if that
// is not to be added to, and a product is added to its sibling where it lies.
type gradientTree struct {
	ex      *tensor.Exec
	sum     tensor.Tensor            // the result
	adds    bool                     // the result is added to what sum holds
	inSum   bool                     // pending[0] is in sum
	fused   bool                     // a contribution can be added to a sum: it is a product, or a tree of them
	pending [treeDepth]tensor.Tensor // partial sums, the last ones over fewer contributions
	slots   int                      // sums that have memory
	leaves  int                      // number of expected contributions
	count   int                      // number of contributions so far
	open    int                      // pending sums in use
}

// treeDepth is enough for any number of contributions.
const treeDepth = 64

// newGradientTree returns a tree for the given number of contributions.
func newGradientTree(ex *tensor.Exec, sum tensor.Tensor, adds bool, leaves int, fused bool) gradientTree {
	t := gradientTree{ex: ex, sum: sum, leaves: leaves, fused: fused, adds: adds}
	if t.inSum = !adds || leaves == 1 && fused; t.inSum {
		t.pending[0], t.slots = sum, 1
	}
	return t
}

// gradientTree returns a tree for some of this rank's rows of the gradient of a pass. The others
// are zeros.
func (w *weight) gradientTree(p phase, own [2]int, leaves int, fused bool) gradientTree {
	to, adds := w.nextRows(p, own)
	return newGradientTree(p.ex, to, adds, leaves, fused)
}

// next returns where to put the next contribution, and whether to add it there.
func (t *gradientTree) next() (to tensor.Tensor, accumulate bool) {
	switch {
	case t.leaves == 1 && t.inSum:
		return t.sum, t.adds
	case t.fused && t.count%2 == 1:
		return t.pending[t.open-1], true
	}
	if t.open == t.slots {
		t.pending[t.slots] = t.ex.New(tensor.FP32, t.sum.Dims()...)
		t.slots++
	}
	return t.pending[t.open], false
}

// push completes a contribution. The last one completes the gradient.
func (t *gradientTree) push() {
	added := t.fused && t.count%2 == 1
	t.count++
	if !added {
		t.open++
	}
	for n := t.count; n%2 == 0; n /= 2 {
		if !added {
			t.merge()
		}
		added = false
	}
	if t.count == t.leaves {
		for t.open > 1 {
			t.merge()
		}
		if t.adds && !t.inSum {
			add(t.ex, t.sum, t.pending[0])
		}
	}
}

// merge adds the last pending sum to the one before it.
func (t *gradientTree) merge() {
	t.open--
	add(t.ex, t.pending[t.open-1], t.pending[t.open])
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
