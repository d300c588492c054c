package moe

import (
	"fmt"

	"spmoe/tensor"
)

// passState is what layers know of a pass, in both of its halves.
type passState struct {
	batch     Batch
	train     bool
	recompute Recompute
	arena     *tensor.Arena // one of the model, until the pass ends
	observer  func(name string, t tensor.Tensor)
	decoding  decoding     // nil: sequences are computed as a whole
	cp        *contextPart // this rank's part of the sequence; nil: batch has whole ones
	mesh      *Mesh        // of the model
	layers    int          // of the model, without blocks that predict further ahead
	lastLayer int          // the number of the stage's last block

	sums       gradientSums
	chains     bool // the dense gradients of passes are added one after another
	deferred   bool // the step has several passes, or the experts have replicas: see rowSums
	multiplies bool // it multiplies the rows of routed experts that passes have saved

	sequences []sequenceLoss // of this rank
	loss      Loss

	chosen  tensor.Tensor // the keys that the last indexer has chosen: see sparseKeys
	choices tensor.Tensor // memory for them, if there is no backward pass

	place   int      // in the order in which the passes of a step add to the gradients
	earlier uint64   // rows of earlier passes, and of earlier ranks in this one: see Pass.locate
	rows    []uint64 // memory for the indices of rows: see draws

	// the first failure of a collective inside a layer; what the pass computes after it has no
	// meaning, and it ends after the current block
	failed error
}

// gradientSums computes the gradients whose operands wait, and is collective.
type gradientSums interface{ compute(p phase) error }

// contextPart is this rank's part of the sequence of a pass.
type contextPart struct {
	group       *peers // the ranks that share the sequence
	tensor      *peers // the ranks of the tp group; nil: this one alone
	rank, ranks int    // of the group
	tokens      int    // of each rank
	whole       Batch  // of the group: one sequence
}

// phase is one half of a pass, forward or backward, on its way through the layers. It says where
// results go:
//
//	arena    of the pass: what lives until the pass ends
//	saved    what the next half reads: in a forward phase what the backward pass needs, in a
//	         backward phase what weight gradients need
//	cheap    the part of saved that Recompute may recompute at little cost
//	scratch  the rest: what lives until the layer, or its half of a block, returns
type phase struct {
	*passState
	ex    *tensor.Exec
	layer int // the current layer

	saved, cheap, scratch *tensor.Arena

	recomputing bool // recomputing activations: they are not counted, observed or routed again
	fused       bool // backward: each layer adds to its weights' gradients at once
}

// decoding is what attention needs of the earlier tokens of sequences that are extended. All
// matrices have the rows of the pass.
type decoding interface {
	// rotate rotates x, [tokens, 2·pairs], to the positions of its tokens, with the pairs of table.
	rotate(ex *tensor.Exec, layer int, table *tensor.RotaryTable, x tensor.Matrix)
	// choose appends keys of an indexer to the cache of a layer, and chooses the keys that attend
	// sees from now on. room returns memory for the choices.
	choose(ex *tensor.Exec, layer, topK int, x tensor.Indexer, room func(bytes int) tensor.Tensor)
	// rotateBack applies the transpose of rotate, with the table of the layer.
	rotateBack(ex *tensor.Exec, layer int, x tensor.Matrix)
	// extend calls f for each sequence, with its cache of a layer and the layer's table, its rows
	// [lo, hi) of the pass, and the number of its earlier tokens.
	extend(layer int, f func(c *entryCache, rope *tensor.RotaryTable, lo, hi, begin int))
	// attend appends k and v to the cache of a layer, and sets o to the output of attention.
	attend(ex *tensor.Exec, layer int, shape tensor.AttentionShape, o, q, k, v tensor.Tensor)
}

// entryCache is the cache of a layer for one sequence.
type entryCache struct {
	keys        tensor.Tensor // [capacity, keyDim]
	main, index compressorCache
}

// compressorCache is the cache of a compressor: values and gates, and the entries of complete
// windows. All have room for the capacity.
type compressorCache struct{ u, z, entries tensor.Tensor }

// forwardPhase returns the phase of a forward pass. An evaluation puts its results where a training
// pass would, so that both use the same memory.
func (p *passState) forwardPhase(ex *tensor.Exec) phase {
	f := phase{passState: p, ex: ex, scratch: &ex.Arena}
	f.saved, f.cheap = p.recompute.arenas(p.arena, &ex.Arena)
	return f
}

// fusedPhase returns the phase of a backward pass in which each layer computes the gradients of its
// weights together with that of its input.
func (p *passState) fusedPhase(ex *tensor.Exec) phase {
	return phase{passState: p, ex: ex, fused: true, saved: &ex.Arena, cheap: &ex.Arena, scratch: &ex.Arena}
}

// inputPhase returns the phase of the gradients of inputs only. The operands of the weights'
// gradients stay until weightPhase.
func (p *passState) inputPhase(ex *tensor.Exec) phase {
	return phase{passState: p, ex: ex, saved: p.arena, cheap: p.arena, scratch: &ex.Arena}
}

// weightPhase returns the phase of the gradients of weights only.
func (p *passState) weightPhase(ex *tensor.Exec) phase {
	return phase{passState: p, ex: ex, saved: &ex.Arena, cheap: &ex.Arena, scratch: &ex.Arena}
}

// savingAll returns the phase without recomputation: everything that is saved is in the arena of
// the pass.
func (p phase) savingAll() phase {
	p.saved, p.cheap = p.arena, p.arena
	return p
}

// recomputePhase returns the phase that recomputes what was dropped. recomputed ends it.
func (p phase) recomputePhase() phase {
	p.recomputing = true
	p.ex.Profile.SetRecompute(true)
	return p
}

func (p phase) endRecompute() { p.ex.Profile.SetRecompute(false) }

// quantizesForWgrad reports whether a forward pass quantizes inputs for the weight gradients as
// well. It does not if the recomputation does, or if there is no backward pass.
func (p phase) quantizesForWgrad() bool {
	return p.train && (p.recompute == RecomputeNone || p.recomputing)
}

// endHalf releases the scratch memory of the first half of a block, unless its result is there too.
func (p phase) endHalf(m tensor.Mark) {
	if p.saved != p.scratch {
		p.ex.Release(m)
	}
}

// endBlock releases what a block needed only for its output. Without a backward pass that is
// everything.
func (p phase) endBlock(scratch, kept tensor.Mark) {
	p.ex.Release(scratch)
	if !p.train {
		p.arena.Release(kept)
	}
}

// residual returns the tensor in which the gradient of a residual stream is summed. dy holds one
// summand. If weight gradients are computed later, they read dy unchanged.
func (p phase) residual(dy tensor.Tensor) tensor.Tensor {
	if p.fused {
		return dy
	}
	sum := like(p.saved, dy)
	tensor.Convert(p.ex, sum.Mat(), dy.Mat())
	return sum
}

// in says which part of the model allocates from now on, for a dry run.
func (p phase) in(part Part) {
	if p.ex.Dry() {
		p.ex.Label(PartKey{part, p.layer >= p.layers}.label())
	}
}

func (p phase) observe(name string, t tensor.Tensor) {
	if p.observer != nil && !p.recomputing {
		p.observer(fmt.Sprintf("layer%d_%s", p.layer, name), t)
	}
}

// scale is the derivative of the mean loss by one token's cross-entropy.
func (p phase) scale() float32 { return 1 / float32(p.batch.GlobalSequences*p.batch.Seq) }

// completes reports whether the sums over passes end with this pass: see sumTree.next.
func (p phase) completes() bool { return !p.batch.More || p.chains }

// size returns the sequences of the pass on each rank: see sumTree.next.
func (p phase) size() int { return max(len(p.batch.Inputs)/max(p.batch.Seq, 1), 1) }

// defersWgrad reports whether the weight gradients of groups of rows are deferred.
func (p phase) defersWgrad(ends []int32) bool { return ends != nil && p.deferred }

// like returns a new matrix of x's shape and type.
func like(to *tensor.Arena, x tensor.Tensor) tensor.Tensor {
	return to.New(x.DType(), x.Dim(0), x.Dim(1))
}
