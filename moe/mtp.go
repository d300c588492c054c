package moe

import (
	"fmt"

	"spmoe/tensor"
)

// mtp is the multi-token prediction module of DeepSeek-V3 (arXiv:2412.19437, 2.2), depth 1:
// from the hidden state at position i and the embedding of token i+1 it predicts token i+2,
// with a block of its own and the model's embedding and output weight.
type mtp struct {
	embedNorm  *rmsNorm
	hiddenNorm *rmsNorm
	project    linear // [dim, 2·dim]
	block      *block
	norm       *rmsNorm

	saved struct {
		embedded, joined tensor.Tensor
		dh               tensor.Tensor // gradient of the block's output
	}
}

func newMTP(b *builder, cfg Config, at place, rope *tensor.RotaryTable) *mtp {
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

// forward returns what the module predicts from the model's last hidden state h: [tokens, dim],
// before its final norm.
func (m *mtp) forward(p *pass, embedding *weight, h tensor.Tensor) (prediction, error) {
	ex, s, batch := p.ex, &m.saved, p.batch
	tokens, dim := h.Dim(0), h.Dim(1)
	s.embedded = like(ex, h)
	tensor.Embed(ex, s.embedded.Mat(), embedding.W.Mat(), batch.Targets)
	s.joined = ex.New(h.DType(), tokens, 2*dim)
	left, right := s.joined.Mat().ColSlice(0, dim), s.joined.Mat().ColSlice(dim, 2*dim)
	tensor.Convert(ex, left, m.embedNorm.forward(ex, s.embedded.Mat()).Mat())
	tensor.Convert(ex, right, m.hiddenNorm.forward(ex, h.Mat()).Mat())
	out, err := m.block.forward(p, m.project.forward(p, s.joined, nil))
	if err != nil {
		return prediction{}, err
	}
	s.dh = like(ex, h)
	p.loss.MTPTokens = tokens - tokens/batch.Seq
	return prediction{norm: m.norm, h: out, dh: s.dh, targets: m.shift(ex, batch), scale: p.scaleMTP(), mtp: true}, nil
}

// shift returns the targets one position further; the last of each sequence has none.
func (m *mtp) shift(ex *tensor.Exec, b Batch) []int32 {
	shifted := ex.New(tensor.INT32, len(b.Targets)).I32()
	for i := range shifted {
		if (i+1)%b.Seq == 0 {
			shifted[i] = -1
		} else {
			shifted[i] = b.Targets[i+1]
		}
	}
	return shifted
}

// backward adds the gradient of the hidden state to dh and those of the weights, and returns that of the embedded targets.
func (m *mtp) backward(p *pass, dh tensor.Tensor) (tensor.Embedded, error) {
	ex, s := p.ex, &m.saved
	dembedded := like(ex, s.embedded)
	if err := m.block.backward(p, s.dh); err != nil {
		return tensor.Embedded{}, err
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	dim := dh.Dim(1)
	djoined := m.project.backward(p, s.dh, s.joined, nil).Mat()
	m.embedNorm.backward(p, dembedded.Mat(), djoined.ColSlice(0, dim), false)
	m.hiddenNorm.backward(p, dh.Mat(), djoined.ColSlice(dim, 2*dim), true)
	return tensor.Embedded{Grad: dembedded.Mat(), IDs: p.batch.Targets}, nil
}
