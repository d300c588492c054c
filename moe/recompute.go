package moe

import (
	"fmt"
	"strings"

	"spmoe/tensor"
)

// Recompute says which activations a block makes anew in the backward pass, instead of keeping them since the forward pass: less memory
// for more time, and the same bits. All ranks use the same, because what is made anew may have to be exchanged anew.
type Recompute uint8

// The ways to recompute, as TorchTitan's activation_checkpoint.mode has them.
const (
	// RecomputeNone keeps what the forward pass has made.
	RecomputeNone Recompute = iota

	// RecomputeSelective makes anew what takes at most kvRank operations a byte: results of norms, SwiGLU, copies and conversions,
	// the quantised copies of inputs, and keys and values, products of latents of kvRank elements. It keeps the other products, whose sums
	// have more terms, what attention gives, the choice of experts, and rows that came from other ranks.
	RecomputeSelective

	// RecomputeFull keeps the input of each block and the experts that its tokens chose. The block's forward pass is made again before its
	// backward pass, with its dispatch and combine: rows of other ranks would take top-k times the memory of the input.
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

// ActivationPeak returns the most bytes that the passes of m with this Exec have held at once in its arena, and beside it for
// RecomputeSelective and from pass to pass.
func (m *Model) ActivationPeak(ex *tensor.Exec) int {
	return ex.Peak() + m.spare.Peak() + m.gathering.Peak()
}

// keeps says whether blocks leave activations to the backward pass.
func (p *pass) keeps() bool { return p.train && p.recompute != RecomputeFull }

// lean says that the forward pass is under way, and makes nothing that the backward pass alone reads if it can do so itself.
func (p *pass) lean() bool { return p.train && p.recompute != RecomputeNone && !p.again }

// brief says whether results that follow are among those that RecomputeSelective makes anew, and returns what was said before. In its
// forward pass they lie in an arena of their own, which each half of a block empties at its end. What ends with the half is brief as well. A
// function whose results are brief begins with
//
//	defer p.brief(p.brief(true))
func (p *pass) brief(on bool) (before bool) {
	if p.spare == nil || p.again {
		return false
	}
	if before = p.aside; on != before {
		p.aside = on
		p.ex.Arena, *p.spare = *p.spare, p.ex.Arena
	}
	return before
}

// endBrief takes back what was brief.
func (p *pass) endBrief() {
	if p.spare != nil {
		p.spare.Reset()
	}
}

// redo says whether what follows is made anew: it is not counted, observed or decided once more. It returns what was said before.
func (p *pass) redo(on bool) (before bool) {
	before, p.again = p.again, on
	p.ex.Profile.Again(on)
	return before
}
