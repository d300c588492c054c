package moe

import (
	"cmp"
	"fmt"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
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

// hidden returns the last hidden state, before the final norm: [tokens, dim].
func (m *Model) hidden(pass *Pass, p phase, in Boundary) (tensor.Tensor, error) {
	if err := pass.locate(p.ex); err != nil {
		return tensor.Tensor{}, err
	}
	h, err := m.embed(p, p.batch.Inputs, in.Hidden)
	if err != nil {
		return h, err
	}
	if m.stage.Embed && m.Config.ResidualStreams > 0 {
		h = expand(p, h, m.Config.ResidualStreams)
	}
	for i := range m.mainBlocks() {
		if h, err = m.forwardBlock(pass, p, i, h); err != nil {
			return h, err
		}
	}
	return h, nil
}

// forwardBlock returns the output of a block for x: [tokens, dim].
func (m *Model) forwardBlock(pass *Pass, p phase, i int, x tensor.Tensor) (tensor.Tensor, error) {
	l := m.blocks[i]
	m.repeat(p.ex, l.times)
	defer m.repeat(p.ex, 1)
	if err := m.sharded.gather(p.ex, m.blockUnit(i)); err != nil {
		return x, err
	}
	y, err := l.forward(p, x, &pass.blocks[i])
	return y, cmp.Or(err, p.failed)
}

// embed returns the embeddings of tokens in memory of the pass: [tokens, dim]. A stage that does
// not embed copies what an earlier one has sent.
func (m *Model) embed(p phase, ids []int32, sent tensor.Tensor) (tensor.Tensor, error) {
	p.in(Embedding)
	if !m.stage.Embed {
		h := like(p.arena, sent)
		tensor.Convert(p.ex, h.Mat(), sent.Mat())
		return h, nil
	}
	h := p.arena.New(m.precision.DType, len(ids), m.Config.Dim)
	if err := m.sharded.gather(p.ex, embeddingUnit); err != nil {
		return h, err
	}
	tensor.Embed(p.ex, h.Mat(), m.embedding.W.Mat(), ids)
	return h, nil
}

// predict computes the losses of all tokens from the last hidden state and, in training, the
// gradients that the backward pass begins with.
func (m *Model) predict(pass *Pass, p phase, h tensor.Tensor, in Boundary) error {
	p.loss.Tokens = len(p.batch.Targets)
	h = m.headMix.read(p.savingAll(), h, &pass.mixed)
	if p.train {
		pass.dh = like(p.arena, h)
	}
	all := [2]prediction{{norm: m.norms[0], h: h, dh: pass.dh, targets: p.whole().Targets, scale: p.scale()}}
	if len(m.norms) > 1 {
		ahead, err := m.ahead(pass, p, h, in)
		if err != nil {
			return err
		}
		all[1] = m.aheadPrediction(pass, p, ahead)
	}
	if err := m.sharded.gather(p.ex, m.headUnit()); err != nil {
		return err
	}
	if err := m.output.forward(p, all[:len(m.norms)]); err != nil {
		return err
	}
	p.loss.sum(p.sequences)
	if !p.train {
		return nil
	}
	for i, norm := range m.norms {
		pass.headNorms = append(pass.headNorms, headNorm{norm, all[i].state})
	}
	return m.sharded.reduce(p, m.headUnit())
}

// locate counts the rows of earlier passes, and of earlier ranks in this one, if the precision
// draws random numbers. Passes of a stage begin in their order, or have equally many rows. It is
// collective.
func (p *Pass) locate(ex *tensor.Exec) error {
	m := p.model
	if p.earlier = 0; !m.precision.draws() {
		return nil
	}
	earlier, all, err := p.countRows(ex)
	if err != nil {
		return fmt.Errorf("counting the tokens of ranks: %w", err)
	}
	p.earlier = earlier
	if p.train {
		if m.begun == 1 {
			m.stepRows = 0
		}
		p.earlier += m.stepRows + uint64(p.place+1-m.begun)*all // modulo 2^64
		m.stepRows += all
	}
	return nil
}

// countRows returns the rows of earlier ranks in this pass, and those of all ranks.
func (p *Pass) countRows(ex *tensor.Exec) (earlier, all uint64, err error) {
	mine, c := len(p.batch.Inputs), p.model.mesh.Operands
	if c == nil {
		return 0, uint64(mine), nil
	}
	defer ex.Enter(ex.Enter(profile.Collectives))
	counts := make([]int64, c.Size())
	if err := collective.AllGather(c, counts, []int64{int64(mine)}); err != nil {
		return 0, 0, err
	}
	for r, n := range counts {
		if r < c.Rank() {
			earlier += uint64(n)
		}
		all += uint64(n)
	}
	return earlier, all, nil
}

// setOutput completes a forward pass that ends with a hidden state.
func (p *Pass) setOutput(f phase, h tensor.Tensor, in Boundary) (err error) {
	p.out.Hidden = h
	switch m := p.model; {
	case m.stage.Ahead > 0:
		p.out.Ahead, err = m.ahead(p, f, h, in)
	case m.stage.Embed && m.Config.MTPLayers > 0:
		p.out.Embedded, err = m.embed(f, p.batch.Targets, tensor.Tensor{})
	}
	p.loss.sum(p.sequences)
	return err
}
