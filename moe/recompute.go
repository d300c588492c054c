package moe

import (
	"fmt"
	"strings"

	"spmoe/tensor"
)

// Recompute says which activations a block makes again in the backward pass, instead of keeping
// them since the forward pass: less memory for more time, and the same bits. All ranks use the
// same, because what is made again may have to be exchanged again.
type Recompute uint8

// The ways to recompute, as TorchTitan's activation_checkpoint.mode has them.
const (
	// RecomputeNone keeps what the forward pass has made.
	RecomputeNone Recompute = iota

	// RecomputeSelective makes again what takes at most kvRank operations per byte: results of
	// norms, SwiGLU, copies and conversions, the quantized copies of inputs, and keys and values,
	// products of latents of kvRank elements. It keeps the other products, whose sums have more
	// terms, what attention gives, the choice of experts, and rows that came from other ranks.
	RecomputeSelective

	// RecomputeFull keeps the input of each block and the experts that its tokens chose. The
	// block's forward pass is made again before its backward pass, with its dispatch and combine:
	// rows of other ranks would take top-k times the memory of the input.
	RecomputeFull
	recomputes
)

var recomputeNames = [recomputes]string{"none", "selective", "full"}

func (r Recompute) String() string { return recomputeNames[r] }

// ParseRecompute returns the way of that name: none, selective or full.
func ParseRecompute(name string) (Recompute, error) {
	for r, known := range recomputeNames {
		if name == known {
			return Recompute(r), nil
		}
	}
	return RecomputeNone, fmt.Errorf("recompute is %q: use one of %s", name, strings.Join(recomputeNames[:], ", "))
}

// arenas says where a forward pass leaves what its backward pass reads: kept, and cheap, that part
// of it which takes little work to make again. What lies in scratch memory ends with its half of a
// block, and is refilled before the backward pass of that half.
func (r Recompute) arenas(own, scratch *tensor.Arena) (kept, cheap *tensor.Arena) {
	switch r {
	case RecomputeSelective:
		return own, scratch
	case RecomputeFull:
		return scratch, scratch
	}
	return own, own
}

// refillMix makes again the first half, all of it, for the backward passes of both.
func (l *block) refillMix(p phase, s *blockState) {
	if p.recompute != RecomputeFull {
		return
	}
	p = p.refilling()
	defer p.refilled()
	s.ffnNorm.x = l.mix(p, s.x, s).Mat()
}

// refillFeed makes again what the backward pass of the second half needs.
func (l *block) refillFeed(p phase, s *blockState) (err error) {
	if p.recompute == RecomputeNone {
		return nil
	}
	p = p.refilling()
	defer p.refilled()
	in := l.ffnNorm.forward(p, p.cheap, s.ffnNorm.x, &s.ffnNorm)
	if p.recompute == RecomputeSelective {
		l.ffn.refill(p, in, &s.feed)
	} else {
		_, err = l.ffn.forward(p, in, &s.feed)
	}
	return err
}

// refillAttention makes again the inputs of attention's projections, and keys and values.
func (l *block) refillAttention(p phase, s *blockState) {
	if p.recompute != RecomputeSelective {
		return
	}
	p = p.refilling()
	defer p.refilled()
	l.attention.refill(p, l.attnNorm.forward(p, p.cheap, s.attnNorm.x, &s.attnNorm), &s.attention)
}

// refill makes again what lay in cheap memory, from the input.
func (a *attention) refill(p phase, x tensor.Tensor, s *attentionState) {
	s.x.refill(x)
	if a.qNorm != nil {
		s.qLatent.refill(a.qNorm.forward(p, p.cheap, s.qNorm.x, &s.qNorm))
	}
	s.kvLatent = activation{Tensor: a.kvNorm.forward(p, p.cheap, s.kvNorm.x, &s.kvNorm)} // expand quantizes it again
	a.expand(p, s)
}

// refill gives an activation its rows back. What they were quantized to is lost: only wgrad reads
// it from now on, and quantizes what it reads.
func (a *activation) refill(x tensor.Tensor) {
	*a = activation{Tensor: x, ends: a.ends, shown: a.shown}
}
