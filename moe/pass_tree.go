package moe

import (
	"math/bits"

	"spmoe/tensor"
)

// passTree adds up what the passes of a step contribute to some gradients, pass by pass, as a
// balanced binary tree. The tree goes on where those over sequences (tensor.Wgrad) and ranks end:
// a pass covers the next sequences of the global batch. If every pass except the last has 2^i of
// them, the gradient does not depend on the number of passes.
//
// Of P passes it holds log2(P) sums at most: the last pass needs no memory, and neither does the
// second of two siblings.
type passTree struct {
	dims  []int           // of the gradients
	sums  []tensor.Tensor // FP32: memory of the pending sums; none has more passes than the one before
	first int             // the number of sums whose memory is not the tree's: 0 or 1
	count int             // passes added
	open  int             // pending sums in use
	given bool            // next has been called and push has not
	added bool            // the current pass is added to the last pending sum
}

// newPassTree returns a tree whose result is in sum.
func newPassTree(sum tensor.Tensor) passTree {
	return passTree{dims: sum.Dims(), sums: []tensor.Tensor{sum}, first: 1}
}

// next returns where to put the gradient of the next pass, and whether to add it there. last says
// that no other pass follows. It may also be set for each pass: then the passes are one chain.
func (t *passTree) next(ex *tensor.Exec, last bool) (to tensor.Tensor, adds bool) {
	t.given, t.added = true, t.open > 0 && (last || t.count%2 == 1)
	if t.added {
		return t.sums[t.open-1], true
	}
	if t.open == len(t.sums) {
		t.sums = append(t.sums, ex.NewLasting(tensor.FP32, t.dims...))
	}
	return t.sums[t.open], false
}

// push completes the gradient of a pass, if next was called for it. The last one completes the
// result.
func (t *passTree) push(ex *tensor.Exec, last bool) {
	if !t.given {
		return
	}
	t.given = false
	t.count++
	merges := bits.TrailingZeros(uint(t.count))
	if !t.added {
		t.open++
	} else if merges > 0 {
		merges--
	}
	if last {
		merges = t.open - 1
	}
	for range merges {
		t.open--
		add(ex, t.sums[t.open-1], t.sums[t.open])
	}
}

// addTo adds the pending sums to the gradient of the last pass, which is elsewhere.
func (t *passTree) addTo(ex *tensor.Exec, last tensor.Tensor) {
	for i := t.open - 1; i >= 0; i-- {
		add(ex, last, t.sums[i])
	}
}

// reset drops the sums of a step.
func (t *passTree) reset() {
	t.restart()
	t.given = false
}

// restart drops the sums of the passes so far, because they are elsewhere.
func (t *passTree) restart() { t.count, t.open = 0, 0 }

// copies returns the sums that have memory of their own.
func (t *passTree) copies() []tensor.Tensor { return t.sums[t.first:] }
