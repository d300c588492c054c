package moe

import (
	"fmt"

	"spmoe/tensor"
)

// phase is one half of a pass, forward or backward, on its way through the layers. It says where
// results go:
//
//	arena  of the pass: what lives until the pass ends
//	kept   what the next half reads: in a forward phase what the backward pass needs, in a backward
//	       phase what weight gradients need
//	cheap  that part of what is kept which Recompute may make again for little
//	brief  the rest: what lives until the layer, or its half of a block, returns
type phase struct {
	*Pass
	ex    *tensor.Exec
	layer int // under way

	kept, cheap, brief *tensor.Arena

	again bool // activations are made again: they are not counted, observed or decided once more
	fused bool // backward: each layer adds to its weights' gradients at once
}

// forwardPhase is that of a forward pass. An evaluation leaves its results where a training pass
// would, so that both use the same memory.
func (p *Pass) forwardPhase(ex *tensor.Exec) phase {
	f := phase{Pass: p, ex: ex, brief: &ex.Arena}
	f.kept, f.cheap = p.recompute.arenas(&p.arena, &ex.Arena)
	return f
}

// fusedPhase is that of a backward pass in which each layer makes its weights' gradients with that
// of its input.
func (p *Pass) fusedPhase(ex *tensor.Exec) phase {
	return phase{Pass: p, ex: ex, fused: true, kept: &ex.Arena, cheap: &ex.Arena, brief: &ex.Arena}
}

// inputPhase is that of the gradients of inputs alone. What the weights' gradients need stays until
// weightPhase.
func (p *Pass) inputPhase(ex *tensor.Exec) phase {
	return phase{Pass: p, ex: ex, kept: &p.arena, cheap: &p.arena, brief: &ex.Arena}
}

// weightPhase is that of the gradients of weights alone.
func (p *Pass) weightPhase(ex *tensor.Exec) phase {
	return phase{Pass: p, ex: ex, kept: &ex.Arena, cheap: &ex.Arena, brief: &ex.Arena}
}

// keepingAll is the phase without recomputation: all that is kept lies in the arena of the pass.
func (p phase) keepingAll() phase {
	p.kept, p.cheap = &p.arena, &p.arena
	return p
}

// refilling is the phase in which what recomputation has dropped is made again; refilled ends it.
func (p phase) refilling() phase {
	p.again = true
	p.ex.Profile.Again(true)
	return p
}

func (p phase) refilled() { p.ex.Profile.Again(false) }

// quantizesForWgrad says whether a forward pass quantizes inputs for the weight gradients as well:
// not if that is made again, or if there is no backward pass.
func (p phase) quantizesForWgrad() bool {
	return p.train && (p.recompute == RecomputeNone || p.again)
}

// endHalf releases the scratch memory of the first half of a block, unless its result lies there
// too.
func (p phase) endHalf(m tensor.Mark) {
	if p.kept != p.brief {
		p.ex.Release(m)
	}
}

// endBlock releases what a block needed for its output alone: all that it kept, if there is no
// backward pass.
func (p phase) endBlock(scratch, kept tensor.Mark) {
	p.ex.Release(scratch)
	if !p.train {
		p.arena.Release(kept)
	}
}

// residual returns where the gradient of a residual stream is added to dy, which holds one summand.
// Weight gradients that are still to be made read dy as it is.
func (p phase) residual(dy tensor.Tensor) tensor.Tensor {
	if p.fused {
		return dy
	}
	sum := like(p.kept, dy)
	tensor.Convert(p.ex, sum.Mat(), dy.Mat())
	return sum
}

func (p phase) observe(name string, t tensor.Tensor) {
	if p.observer != nil && !p.again {
		p.observer(fmt.Sprintf("layer%d_%s", p.layer, name), t)
	}
}

// scale is the gradient of the mean loss for one token's cross-entropy, scaleMTP that of the MTP
// module.
func (p phase) scale() float32 { return 1 / float32(p.batch.GlobalSequences*p.batch.Seq) }

func (p phase) scaleMTP() float32 {
	return float32(p.model.Config.MTPWeight / float64(p.batch.GlobalSequences*max(p.batch.Seq-1, 1)))
}
