package moe

import (
	"fmt"

	"spmoe/tensor"
)

// Multi-token prediction, MTP, of DeepSeek-V3 (arXiv:2412.19437, 2.2), depth 1: a further block
// predicts token i+2. Its input joins the last hidden state at position i, and the embedding of
// token i+1. It has the model's embedding and output weight, and a norm of its own before the
// latter.

// join is what precedes the block: project·(embedNorm(embedded) | hiddenNorm(h)).
type join struct {
	embedNorm  *rmsNorm
	hiddenNorm *rmsNorm
	project    linear // [dim, 2·dim]
}

// joinState is the state of a join in a pass.
type joinState struct {
	embedded   tensor.Tensor // the targets: [tokens, dim]
	embedNorm  normState
	hiddenNorm normState
	joined     activation // [tokens, 2·dim]
	project    linearState
}

// newAheadNorm returns the norm between the block and the head, which another stage may have.
func newAheadNorm(b *builder, cfg Config) *rmsNorm {
	b.layer = cfg.Layers
	return newNorm(b, fmt.Sprintf("model.layers.%d.shared_head.norm", cfg.Layers), cfg.Dim, cfg.NormEps)
}

// forward returns the block's input from the last hidden state h, before the final norm: both
// [tokens, dim]. It is saved, even if the block is recomputed.
func (j *join) forward(p phase, h tensor.Tensor, s *joinState) tensor.Tensor {
	tokens, dim := h.Dim(0), h.Dim(1)
	p = p.savingAll()
	p.in(Joint)
	left := j.embedNorm.forward(p, p.scratch, s.embedded.Mat(), &s.embedNorm).Mat()
	right := j.hiddenNorm.forward(p, p.scratch, h.Mat(), &s.hiddenNorm).Mat()
	s.joined = activation{Tensor: p.saved.New(h.DType(), tokens, 2*dim)}
	tensor.Convert(p.ex, s.joined.Mat().ColSlice(0, dim), left)
	tensor.Convert(p.ex, s.joined.Mat().ColSlice(dim, 2*dim), right)
	return j.project.forward(p, p.saved, &s.joined, &s.project)
}

// backward sets dembedded to the gradient of the embedded targets, and adds that of the hidden
// state to dh. dx is the gradient of the block's input.
func (j *join) backward(p phase, dembedded, dh, dx tensor.Tensor, s *joinState) error {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	dim := dh.Dim(1)
	djoined := j.project.backward(p, p.scratch, activation{Tensor: dx}, &s.project).Mat()
	if err := p.sums.compute(p); err != nil {
		return err
	}
	j.embedNorm.backward(p, dembedded.Mat(), djoined.ColSlice(0, dim), false, &s.embedNorm)
	j.hiddenNorm.backward(p, dh.Mat(), djoined.ColSlice(dim, 2*dim), true, &s.hiddenNorm)
	return nil
}

// backwardWeight adds to the gradients of all weights.
func (j *join) backwardWeight(p phase, s *joinState) error {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	j.project.backwardWeight(p, &s.project)
	j.embedNorm.backwardWeight(p, &s.embedNorm)
	j.hiddenNorm.backwardWeight(p, &s.hiddenNorm)
	return p.sums.compute(p)
}

// laterTargets returns the targets one position later; the last token of each sequence has none.
func laterTargets(ex *tensor.Exec, b Batch) []int32 {
	shifted := ex.New(tensor.INT32, len(b.Targets)).I32()
	if ex.Dry() {
		return shifted
	}
	for i := range shifted {
		if (i+1)%b.Seq == 0 {
			shifted[i] = -1
		} else {
			shifted[i] = b.Targets[i+1]
		}
	}
	return shifted
}
