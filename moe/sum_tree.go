package moe

import "spmoe/tensor"

// sumTree sums contributions to a gradient that come one after the other: those of sequences, of
// ranks, or of the passes of a step. It forms the balanced binary tree that tensor.Wgrad documents.
// So the sum over passes goes on where those over sequences and ranks end: a pass covers the next
// sequences of the global batch. Passes of equally many sequences come first. If that is 2^i, and
// each later pass has a smaller power of two, the gradient does not depend on the passes.
//
// Of n contributions it holds log2(n) sums at most: a product is added to its sibling in place.
type sumTree struct {
	dims    []int
	sums    []tensor.Tensor // FP32: memory of the pending sums; none has more contributions than the one before
	first   int             // the number of sums whose memory is not the tree's: 0 or 1
	count   int             // contributions added
	sizes   []int           // sequences in each pending sum
	size    int             // sequences in the current contribution
	open    int             // pending sums in use
	given   bool            // next has been called and push has not
	added   bool            // the current contribution is added to the last pending sum
	apart   bool            // contributions cannot be added to a sum where it lies
	scratch bool            // pending sums are in the arena of the Exec, and do not last
}

// newSumTree returns a lasting tree whose result is in sum.
func newSumTree(sum tensor.Tensor) sumTree {
	return sumTree{dims: sum.Dims(), sums: []tensor.Tensor{sum}, first: 1}
}

// next returns where to put the next contribution, of size sequences, and whether to add it there.
// Sums of equally many sequences are siblings. last says that no other one follows. It may also be
// set each time: then the contributions are one chain.
func (t *sumTree) next(ex *tensor.Exec, size int, last bool) (to tensor.Tensor, adds bool) {
	t.given, t.size = true, size
	t.added = !t.apart && t.open > 0 && (last || t.sizes[t.open-1] == size)
	if t.added {
		return t.sums[t.open-1], true
	}
	if t.open == len(t.sums) {
		if t.scratch {
			t.sums = append(t.sums, ex.New(tensor.FP32, t.dims...))
		} else {
			t.sums = append(t.sums, ex.NewLasting(tensor.FP32, t.dims...))
		}
	}
	return t.sums[t.open], false
}

// push completes a contribution, if next was called for it. The last one completes the result.
func (t *sumTree) push(ex *tensor.Exec, last bool) {
	if !t.given {
		return
	}
	t.given = false
	t.count++
	if t.added {
		t.sizes[t.open-1] += t.size
	} else {
		t.sizes = append(t.sizes[:t.open], t.size)
		t.open++
	}
	for t.open > 1 && (last || t.sizes[t.open-2] == t.sizes[t.open-1]) {
		t.open--
		add(ex, t.sums[t.open-1], t.sums[t.open])
		t.sizes[t.open-1] += t.sizes[t.open]
	}
}

// addTo adds the pending sums to the last contribution, which is elsewhere.
func (t *sumTree) addTo(ex *tensor.Exec, last tensor.Tensor) {
	for i := t.open - 1; i >= 0; i-- {
		add(ex, last, t.sums[i])
	}
}

// restart drops the sums so far, because they are elsewhere or of an earlier step.
func (t *sumTree) restart() { t.count, t.open, t.given = 0, 0, false }

// copies returns the sums that have memory of their own.
func (t *sumTree) copies() []tensor.Tensor { return t.sums[t.first:] }

// gradientTree is the sum of a known number of contributions to the gradient of a pass.
type gradientTree struct {
	ex     *tensor.Exec
	sum    tensor.Tensor // the result
	adds   bool          // the result is added to what sum holds
	direct bool          // so is the only contribution, a product
	leaves int           // contributions
	tree   sumTree
}

// newGradientTree returns the sum of leaves contributions. fused says that they are products, or
// trees of them, which can be added to a sum where it lies.
func newGradientTree(ex *tensor.Exec, sum tensor.Tensor, adds bool, leaves int, fused bool) gradientTree {
	t := gradientTree{ex: ex, sum: sum, adds: adds, direct: adds && leaves == 1 && fused, leaves: leaves}
	if t.tree = (sumTree{dims: sum.Dims(), apart: !fused, scratch: true}); !adds {
		t.tree.sums, t.tree.first = []tensor.Tensor{sum}, 1
	}
	return t
}

// next returns where to put the next contribution, and whether to add it there.
func (t *gradientTree) next() (to tensor.Tensor, adds bool) {
	if t.direct {
		return t.sum, true
	}
	return t.tree.next(t.ex, 1, t.tree.count == t.leaves-1)
}

// push completes a contribution. The last one completes the gradient.
func (t *gradientTree) push() {
	t.tree.push(t.ex, t.tree.count == t.leaves-1)
	if t.adds && !t.direct && t.tree.count == t.leaves {
		add(t.ex, t.sum, t.tree.sums[0])
	}
}

func add(ex *tensor.Exec, sum, x tensor.Tensor) { tensor.Add(ex, sum.Mat(), sum.Mat(), x.Mat()) }
