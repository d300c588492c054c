package moe

import (
	"cmp"
	"fmt"

	"spmoe/tensor"
)

// mtp is the multi-token prediction module of DeepSeek-V3 (arXiv:2412.19437, 2.2), depth 1. From
// the hidden state at position i and the embedding of token i+1 it predicts token i+2, with its own
// block and the model's embedding and output weight. Its last norm is with the output weight, which
// another stage may have: see mtpPrediction.
type mtp struct {
	embedNorm  *rmsNorm
	hiddenNorm *rmsNorm
	project    linear // [dim, 2·dim]
	block      *block
}

// mtpState is the state of the module in a pass.
type mtpState struct {
	embedded   tensor.Tensor // of the targets
	embedNorm  normState
	hiddenNorm normState
	joined     activation
	project    linearState
	block      blockState
}

func newMTP(b *builder, cfg Config, at rankContext, rope *tensor.RotaryTable) *mtp {
	prefix := fmt.Sprintf("model.layers.%d.", cfg.Layers)
	m := &mtp{
		embedNorm:  newNorm(b, prefix+"enorm", cfg.Dim, cfg.NormEps),
		hiddenNorm: newNorm(b, prefix+"hnorm", cfg.Dim, cfg.NormEps),
	}
	b.linear(&m.project, prefix+"eh_proj", cfg.Dim, 2*cfg.Dim, truncNormal(linearStd))
	m.block = newBlock(b, cfg, at, cfg.Layers, rope)
	return m
}

// newMTPNorm returns the norm between the module and the head.
func newMTPNorm(b *builder, cfg Config) *rmsNorm {
	return newNorm(b, fmt.Sprintf("model.layers.%d.shared_head.norm", cfg.Layers), cfg.Dim, cfg.NormEps)
}

// forward returns the module's hidden state, before its last norm, from the model's last hidden
// state h, before the final norm: both [tokens, dim]. In a stage that does not embed, the embedded
// targets were sent.
func (m *mtp) forward(p phase, h, sent tensor.Tensor, s *mtpState) (out tensor.Tensor, err error) {
	ex := p.ex
	tokens, dim := h.Dim(0), h.Dim(1)
	p.in(Joint)
	front := p.savingAll() // what precedes the block is saved, even if the block is recomputed
	if s.embedded, err = p.model.embed(p, p.batch.Targets, sent); err != nil {
		return out, err
	}
	if err := p.model.sharded.gather(ex, p.model.mtpUnit()); err != nil {
		return out, err
	}
	left := m.embedNorm.forward(front, p.scratch, s.embedded.Mat(), &s.embedNorm).Mat()
	right := m.hiddenNorm.forward(front, p.scratch, h.Mat(), &s.hiddenNorm).Mat()
	s.joined = activation{Tensor: front.saved.New(h.DType(), tokens, 2*dim)}
	tensor.Convert(ex, s.joined.Mat().ColSlice(0, dim), left)
	tensor.Convert(ex, s.joined.Mat().ColSlice(dim, 2*dim), right)
	projected := m.project.forward(front, front.saved, &s.joined, &s.project)
	return m.block.forward(p, projected, &s.block)
}

// mtpHidden returns the MTP module's hidden state, which another stage may have computed.
func (m *Model) mtpHidden(p phase, h tensor.Tensor, in Boundary) (tensor.Tensor, error) {
	if m.mtp == nil {
		return in.MTP, nil
	}
	out, err := m.mtp.forward(p, h, in.Embedded, &p.mtp)
	return out, cmp.Or(err, p.failed)
}

// mtpPrediction returns the prediction from the module's hidden state.
func (m *Model) mtpPrediction(p phase, h tensor.Tensor) prediction {
	p.dmtp = like(p.arena, h)
	p.loss.MTPTokens = h.Dim(0) - h.Dim(0)/p.batch.Seq
	all := p.batch
	if p.cp != nil {
		if all = p.cp.whole; p.cp.rank == p.cp.ranks-1 {
			p.loss.MTPTokens-- // the last token of the sequence
		}
	}
	return prediction{norm: m.mtpNorm, h: h, dh: p.dmtp, targets: laterTargets(p.ex, all), scale: p.scaleMTP(), mtp: true}
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

// backward adds the gradient of the hidden state to dh and sets the gradient of the embedded
// targets.
func (m *mtp) backward(p phase, dh tensor.Tensor, s *mtpState) error {
	p.dembedded = like(p.arena, s.embedded)
	dprojected, err := m.block.backward(p, p.dmtp, &s.block)
	if err != nil {
		return err
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	dim := dh.Dim(1)
	djoined := m.project.backward(p, p.scratch, activation{Tensor: dprojected}, &s.project).Mat()
	if err := p.model.computeShared(p); err != nil {
		return err
	}
	m.embedNorm.backward(p, p.dembedded.Mat(), djoined.ColSlice(0, dim), false, &s.embedNorm)
	m.hiddenNorm.backward(p, dh.Mat(), djoined.ColSlice(dim, 2*dim), true, &s.hiddenNorm)
	p.layer = m.block.layer
	return nil
}

// backwardWeight adds to the gradients of all weights except the final norm, whose gradient the
// head adds.
func (m *mtp) backwardWeight(p phase, s *mtpState) error {
	if err := m.block.backwardWeight(p, &s.block); err != nil {
		return err
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	m.project.backwardWeight(p, &s.project)
	m.embedNorm.backwardWeight(p, &s.embedNorm)
	m.hiddenNorm.backwardWeight(p, &s.hiddenNorm)
	return p.model.computeShared(p)
}
