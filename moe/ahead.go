package moe

import (
	"spmoe/tensor"
)

// ahead returns the hidden state for the prediction further ahead, which another stage may have
// computed, from the last hidden state h: both [tokens, dim].
func (m *Model) ahead(pass *Pass, p phase, h tensor.Tensor, in Boundary) (tensor.Tensor, error) {
	if m.stage.Ahead == 0 {
		return in.Ahead, nil
	}
	last := len(m.blocks) - 1
	var err error
	if pass.blocks[last].join.embedded, err = m.embed(p, p.batch.Targets, in.Embedded); err != nil {
		return h, err
	}
	return m.forwardBlock(pass, p, last, h)
}

// aheadPrediction returns the prediction from a hidden state of [Model.ahead].
func (m *Model) aheadPrediction(pass *Pass, p phase, h tensor.Tensor) prediction {
	pass.dahead = like(p.arena, h)
	p.loss.AheadTokens = h.Dim(0) - p.endsHere() // the last token of a sequence has no later one
	scale := float32(m.Config.MTPWeight / float64(p.batch.GlobalSequences*max(p.batch.Seq-1, 1)))
	return prediction{norm: m.norms[1], h: h, dh: pass.dahead, targets: laterTargets(p.ex, p.whole()), scale: scale, ahead: true}
}
