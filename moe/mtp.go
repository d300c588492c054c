package moe

import (
	"fmt"

	"spmoe/tensor"
)

// mtp is the multi-token prediction module of DeepSeek-V3 (arXiv:2412.19437, 2.2), depth 1. From
// the hidden state at position i and the embedding of token i+1 it predicts token i+2, with its own
// block and the model's embedding and output weight.
type mtp struct {
	embedNorm  *rmsNorm
	hiddenNorm *rmsNorm
	project    linear // [dim, 2·dim]
	block      *block
	norm       *rmsNorm
}

// mtpState is the state of the module in a pass.
type mtpState struct {
	input      seal          // of the hidden state
	seals      seals         // of what precedes the block
	embedded   tensor.Tensor // of the targets
	embedNorm  normState
	hiddenNorm normState
	joined     activation
	project    linearState
	block      blockState
	dh         tensor.Tensor // gradient of the block's output
}

func newMTP(b *builder, cfg Config, at rankContext, rope *tensor.RotaryTable) *mtp {
	prefix := fmt.Sprintf("model.layers.%d.", cfg.Layers)
	m := &mtp{
		embedNorm:  newNorm(b, prefix+"enorm", cfg.Dim, cfg.NormEps),
		hiddenNorm: newNorm(b, prefix+"hnorm", cfg.Dim, cfg.NormEps),
	}
	b.linear(&m.project, prefix+"eh_proj", cfg.Dim, 2*cfg.Dim, truncNormal(linearStd))
	m.block = newBlock(b, cfg, at, cfg.Layers, rope)
	m.norm = newNorm(b, prefix+"shared_head.norm", cfg.Dim, cfg.NormEps)
	return m
}

// forward returns the module's prediction from the model's last hidden state h: [tokens, dim],
// before the final norm. In a stage that does not embed, the embedded targets were sent.
func (m *mtp) forward(p phase, h, sent tensor.Tensor, s *mtpState) (prediction, error) {
	ex, batch := p.ex, p.batch
	tokens, dim := h.Dim(0), h.Dim(1)
	front := p.savingAll() // what precedes the block is saved, even if the block is recomputed
	var err error
	if s.embedded, err = p.model.embed(p, batch.Targets, sent); err != nil {
		return prediction{}, err
	}
	if err := p.model.sharded.gather(ex, p.model.mtpUnit()); err != nil {
		return prediction{}, err
	}
	s.joined = activation{Tensor: front.saved.New(h.DType(), tokens, 2*dim)}
	left, right := s.joined.Mat().ColSlice(0, dim), s.joined.Mat().ColSlice(dim, 2*dim)
	tensor.Convert(ex, left, m.embedNorm.forward(front, p.scratch, s.embedded.Mat(), &s.embedNorm).Mat())
	tensor.Convert(ex, right, m.hiddenNorm.forward(front, p.scratch, h.Mat(), &s.hiddenNorm).Mat())
	projected := m.project.forward(front, front.saved, &s.joined, &s.project)
	s.seals = p.reset(s.seals)
	p.seal(&s.seals)
	p.sealTensor(&s.input, h)
	out, err := m.block.forward(p, projected, &s.block)
	if err != nil {
		return prediction{}, err
	}
	s.dh = like(front.saved, h)
	p.loss.MTPTokens = tokens - tokens/batch.Seq
	return prediction{norm: m.norm, h: out, dh: s.dh, targets: m.shift(p.scratch, batch), scale: p.scaleMTP(), mtp: true}, nil
}

// shift returns the targets one position later; the last token of each sequence has none.
func (m *mtp) shift(to *tensor.Arena, b Batch) []int32 {
	shifted := to.New(tensor.INT32, len(b.Targets)).I32()
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
	dprojected, err := m.block.backward(p, s.dh, &s.block)
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
	p.verifyAll(s.seals)
	p.verify(&s.input)
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
