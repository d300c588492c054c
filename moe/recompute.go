package moe

import (
	"fmt"
	"strings"

	"spmoe/tensor"
)

// Recompute says which activations a block recomputes in the backward pass instead of saving them
// in the forward pass: less memory for more time, and the same bits. All ranks use the same policy,
// because recomputation may need another exchange.
type Recompute uint8

// The policies, as in TorchTitan's activation_checkpoint.mode.
const (
	// RecomputeNone saves all activations.
	RecomputeNone Recompute = iota

	// RecomputeSelective recomputes what takes at most kvRank operations per byte: results of
	// norms, SwiGLU, copies and conversions, the quantized copies of inputs, and keys and values,
	// which are products of latents of kvRank elements. It saves the other products, whose sums
	// have more terms, the output of attention, the choice of experts, and rows from other ranks.
	RecomputeSelective

	// RecomputeFull saves the input of each block and the experts of its tokens. The backward pass
	// of a block repeats its forward pass first, including dispatch and combine: saving the rows of
	// other ranks would take top-k times the memory of the input.
	RecomputeFull
	recomputes
)

var recomputeNames = [recomputes]string{"none", "selective", "full"}

// String implements [fmt.Stringer].
func (r Recompute) String() string { return recomputeNames[r] }

// ParseRecompute returns the policy with this name: none, selective or full.
func ParseRecompute(name string) (Recompute, error) {
	for r, known := range recomputeNames {
		if name == known {
			return Recompute(r), nil
		}
	}
	return RecomputeNone, fmt.Errorf("recompute is %q: use one of %s", name, strings.Join(recomputeNames[:], ", "))
}

// arenas says where a forward pass puts what its backward pass reads: saved, and cheap, the part
// that takes little work to recompute. The content of scratch memory ends with its half of a block,
// and is recomputed before the backward pass of that half.
func (r Recompute) arenas(own, scratch *tensor.Arena) (kept, cheap *tensor.Arena) {
	switch r {
	case RecomputeSelective:
		return own, scratch
	case RecomputeFull:
		return scratch, scratch
	}
	return own, own
}
