package moe

import (
	"spmoe/tensor"
)

// ahead returns the hidden state for the prediction further ahead, which another stage may have
// computed, from the last hidden state h: both [tokens, dim].
func (m *Model) ahead(p phase, h tensor.Tensor, in Boundary) (tensor.Tensor, error) {
	if m.stage.Ahead == 0 {
		return in.Ahead, nil
	}
	last := len(m.blocks) - 1
	var err error
	if p.blocks[last].join.embedded, err = m.embed(p, p.batch.Targets, in.Embedded); err != nil {
		return h, err
	}
	return m.forwardBlock(p, last, h)
}

// aheadPrediction returns the prediction from a hidden state of [Model.ahead].
func (m *Model) aheadPrediction(p phase, h tensor.Tensor) prediction {
	p.dahead = like(p.arena, h)
	p.loss.AheadTokens = h.Dim(0) - h.Dim(0)/p.batch.Seq
	all := p.batch
	if p.cp != nil {
		if all = p.cp.whole; p.cp.rank == p.cp.ranks-1 {
			p.loss.AheadTokens-- // the last token of the sequence
		}
	}
	scale := float32(m.Config.MTPWeight / float64(p.batch.GlobalSequences*max(p.batch.Seq-1, 1)))
	return prediction{norm: m.norms[1], h: h, dh: p.dahead, targets: laterTargets(p.ex, all), scale: scale, ahead: true}
}
