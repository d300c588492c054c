package moe

import (
	"cmp"
	"slices"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Forward runs the forward pass of a training step over b. The slices of b must not change until
// the pass ends. Forward is collective.
//
// It completes the loss and everything after the last hidden state. Logits never exist all at once,
// so the gradients of the head, its norms and their weights are computed together with the loss. It
// adds that of the head's weight.
func (m *Model) Forward(ex *tensor.Exec, b Batch) (*Pass, error) {
	m.beginStep()
	m.several = m.several || b.More
	return m.begin(ex, b, m.begun, m.several).forward(ex, Boundary{})
}

// begin begins a training pass. several says that the step has other passes, and that all except
// the last have [Batch.More].
func (m *Model) begin(ex *tensor.Exec, b Batch, place int, several bool) *Pass {
	p := m.newPass(ex, b, true)
	p.place = place
	m.begun++
	at, _ := slices.BinarySearchFunc(m.inFlight, place, func(p *Pass, place int) int { return p.place - place })
	m.inFlight = slices.Insert(m.inFlight, at, p)
	together := m.Config.WgradPasses(m.precision, len(p.batch.Inputs)*m.mesh.World.Size())
	p.deferred = several || m.mesh.Replicas != nil
	p.multiplies = !b.More || (place+1)%together == 0
	return p
}

// forward runs the forward pass. A pass that fails has ended.
func (p *Pass) forward(ex *tensor.Exec, in Boundary) (*Pass, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	defer ex.Profiling(profile.Rows).End()
	f := p.forwardPhase(ex)
	h, err := p.model.hidden(p, f, in)
	if err == nil && p.model.stage.Predict {
		err = p.model.predict(p, f, h, in)
	} else if err == nil {
		err = p.setOutput(f, h, in)
	}
	if err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// Loss returns the loss of the forward pass.
func (p *Pass) Loss() Loss { return p.loss }

// Backward adds the gradients of the objective to all gradients, or sets them after
// [Group.ZeroGrad]. It is collective. It computes weight gradients layer by layer, while their
// operands are in the caches, unless earlier passes of the step have not added theirs yet.
func (p *Pass) Backward(ex *tensor.Exec) error {
	if err := p.BackwardLayers(ex); err != nil {
		return err
	}
	return p.BackwardWeight(ex)
}

// BackwardLayers is the first part of Backward, and BackwardWeight the second. After it, the
// gradient of a stage's input is complete.
func (p *Pass) BackwardLayers(ex *tensor.Exec) error {
	if p.model.next() != p {
		return p.BackwardInput(ex)
	}
	p.added = true
	return p.backward(p.fusedPhase(ex))
}

// BackwardInput computes the gradients of all layers' inputs (I) and saves the operands of the
// weights' gradients. It is collective: it contains all exchanges of tokens of the backward pass.
func (p *Pass) BackwardInput(ex *tensor.Exec) error { return p.backward(p.inputPhase(ex)) }

// BackwardWeight computes the weights' gradients (W), any time after BackwardInput. If passes of
// the step that began earlier have not added theirs, the last of these passes does this one's work.
//
// It is collective: the ranks of a host compute the gradients of the weights that they share
// together.
func (p *Pass) BackwardWeight(ex *tensor.Exec) error {
	p.waiting = true
	m := p.model
	for next := m.next(); next != nil && next.waiting; next = m.next() {
		if err := next.backwardWeight(ex); err != nil {
			return err
		}
	}
	return nil
}

// backward runs through the layers, last to first. A pass that fails has ended.
func (p *Pass) backward(b phase) (err error) {
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	mark := b.ex.Mark()
	defer b.ex.Release(mark)
	defer b.ex.Profiling(profile.Rows).End()
	m := p.model
	b.layer = p.lastLayer
	if m.headMix != nil {
		p.dh = p.headGradient(b)
	}
	defer m.repeat(b.ex, 1)
	for i, l := range slices.Backward(m.blocks) {
		m.repeat(b.ex, l.times)
		err := m.backwardUnit(b, m.blockUnit(i), func() error { return p.backwardBlock(b, l, &p.blocks[i]) })
		if err != nil {
			return err
		}
	}
	return nil
}

// backwardBlock is the backward pass of a block.
func (p *Pass) backwardBlock(b phase, l *block, s *blockState) (err error) {
	join := l.residual.join
	if join == nil {
		p.dh, err = l.backward(b, p.dh, s)
		return err
	}
	p.dembedded = like(p.arena, s.join.embedded)
	dx, err := l.backward(b, p.dahead, s)
	if err != nil {
		return err
	}
	b.layer = l.layer
	return join.backward(b, p.dembedded, p.dh, dx, &s.join)
}

// headGradient returns the gradient of the last streams.
func (p *Pass) headGradient(b phase) tensor.Tensor {
	mark := b.ex.Mark()
	defer b.ex.Release(mark)
	dx := like(p.arena, p.mixed.x)
	p.model.headMix.inputGradient(b, dx, tensor.Tensor{}, p.dh, &p.mixed)
	return dx
}

// next returns the pass whose turn it is to add to the weights' gradients; nil: none is in flight.
func (m *Model) next() *Pass {
	if len(m.inFlight) == 0 {
		return nil
	}
	return m.inFlight[0]
}

// backwardUnit runs the backward pass of a unit between gathering its weights and summing its
// gradients, if this phase computes them.
func (m *Model) backwardUnit(b phase, unit int, run func() error) error {
	if err := m.sharded.gather(b.ex, unit); err != nil {
		return err
	}
	if err := cmp.Or(run(), b.failed); err != nil || !b.fused {
		return err
	}
	return m.sharded.reduce(b, unit)
}

// backwardWeight completes the weights' gradients. A pass that fails has ended.
func (p *Pass) backwardWeight(ex *tensor.Exec) (err error) {
	if p.added {
		return p.complete(ex)
	}
	defer ex.Profiling(profile.Rows).End()
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	m, w := p.model, p.weightPhase(ex)
	m.headMix.backwardWeight(w, &p.mixed)
	for i, l := range slices.Backward(m.blocks) {
		m.repeat(ex, l.times)
		if err := cmp.Or(l.backwardWeight(w, &p.blocks[i]), p.failed); err != nil {
			return err
		}
		if err := m.sharded.reduce(w, m.blockUnit(i)); err != nil {
			return err
		}
	}
	m.repeat(ex, 1)
	return p.complete(ex)
}

// complete computes the gradient of the embedding, the last one, and ends the pass.
func (p *Pass) complete(ex *tensor.Exec) error {
	defer ex.Profiling(profile.Rows).End()
	defer p.end()
	m, w := p.model, p.weightPhase(ex)
	if m.stage.Embed {
		if err := p.embedBackward(w); err != nil {
			return err
		}
	}
	w.layer = p.lastLayer
	for i := range p.headNorms {
		n := &p.headNorms[i]
		n.backwardWeight(w, &n.state)
	}
	if p.batch.More {
		if err := m.sums.sumPass(w); err != nil {
			return err
		}
	} else {
		for _, g := range m.Groups {
			g.completeGrad(w)
		}
	}
	if p.multiplies {
		m.sums.rows.clear()
		m.sums.rows.Trim()
	}
	ex.Trim()
	return nil
}

// embedBackward adds to the gradient of the embedding.
func (p *Pass) embedBackward(w phase) error {
	m := p.model
	p.embedded = append(p.embedded[:0], embedded{expandBackward(w, p.dh, m.Config.Dim), p.batch.Inputs})
	if p.dembedded.Valid() {
		p.embedded = append(p.embedded, embedded{p.dembedded, p.batch.Targets})
	}
	if err := m.host.embedBackward(w, &m.embedding, p.embedded); err != nil {
		return err
	}
	return m.sharded.reduce(w, embeddingUnit)
}

// newPass begins a pass in the memory of one that has ended.
func (m *Model) newPass(ex *tensor.Exec, b Batch, train bool) *Pass {
	var p *Pass
	if n := len(m.idle); n > 0 {
		p, m.idle = m.idle[n-1], m.idle[:n-1]
	} else {
		p = &Pass{model: m, blocks: make([]blockState, len(m.blocks))}
		p.mesh = &m.mesh
		p.layers = m.Config.Layers
		p.lastLayer = m.lastLayer()
		p.sums = &m.sums
		for i, l := range m.blocks {
			p.blocks[i].attention = l.attention.newState()
		}
		m.passes = append(m.passes, p)
	}
	p.arena = m.arenas.take(ex, m.PassBytes)
	n := len(b.Inputs) / b.Seq
	if p.cp = m.contextOf(b, train); p.cp != nil {
		b = p.cp.cut()
	}
	p.batch = b
	p.train = train
	p.recompute = m.Recompute
	p.observer = m.observer
	p.chains = m.ChainPasses
	p.waiting = false
	p.deferred = false
	p.multiplies = false
	p.added = false
	p.decoding = nil
	p.loss = Loss{}
	p.headNorms = p.headNorms[:0]
	p.out = Boundary{}
	p.dh = tensor.Tensor{}
	p.dembedded = tensor.Tensor{}
	p.dahead = tensor.Tensor{}
	p.failed = nil
	if cap(p.sequences) < n {
		p.sequences = make([]sequenceLoss, n)
	}
	p.sequences = p.sequences[:n]
	clear(p.sequences)
	m.measured = p.sequences
	return p
}

// release frees the memory of the pass. What a training pass has not used goes back to the system.
func (p *Pass) release() {
	p.arena.Reset()
	if p.train {
		p.arena.Trim()
	}
	p.model.arenas.free(p.arena)
	p.model.idle = append(p.model.idle, p)
}

// end removes a training pass from those in flight.
func (p *Pass) end() {
	m := p.model
	if i := slices.Index(m.inFlight, p); i >= 0 {
		m.inFlight = slices.Delete(m.inFlight, i, i+1)
		p.release()
	}
}

// beginStep ends the passes that were left before the last ZeroGrad.
func (m *Model) beginStep() {
	zeroed := 0
	for _, g := range m.Groups {
		zeroed += g.zeroed
	}
	if zeroed == m.zeroed {
		return
	}
	m.zeroed = zeroed
	for _, g := range m.Groups {
		clear(g.scores)
	}
	for len(m.inFlight) > 0 {
		m.inFlight[0].end()
	}
	m.begun, m.several = 0, false
	m.sums.rows.reset()
}

// ActivationPeak returns the maximum bytes that the passes of stages, which share their arenas,
// have held with this Exec: in its arena, in arenas of their own, and from pass to pass.
func ActivationPeak(ex *tensor.Exec, stages ...*Model) int {
	n := ex.Peak() + stages[0].arenas.peak()
	for _, m := range stages {
		n += m.sums.rows.bytes()
	}
	return n
}

// Memory yields the memory in use by training with this Exec, with its kind: what passes have
// saved, scratch memory, and gradients.
func (m *Model) Memory(ex *tensor.Exec, yield func(kind string, memory []byte) bool) {
	each := func(kind string) func([]byte) bool {
		return func(b []byte) bool { return yield(kind, b) }
	}
	for _, a := range m.arenas.all {
		a.Used(each("saved activations"))
	}
	m.sums.rows.Used(each("saved activations"))
	if m.sums.rows.rests != nil {
		m.sums.rows.rests.Used(each("saved activations"))
	}
	ex.Used(each("scratch memory"))
	for _, g := range m.Groups {
		yield("gradients", g.Grad.Slice(0, min(g.ParamLen(), g.Len())).Bytes())
		for t := range g.passTrees {
			for _, sum := range t.sums[t.first:max(t.open, t.first)] {
				yield("gradients", sum.Bytes())
			}
		}
	}
}

// contextOf returns this rank's part of a pass over b; nil: b is its own.
func (m *Model) contextOf(b Batch, train bool) *contextPart {
	if m.context == nil || !train && !b.Shared || len(b.Inputs) == 0 {
		return nil
	}
	comm := m.mesh.Sequence
	return &contextPart{group: m.context, tensor: m.tensor, rank: comm.Rank(), ranks: comm.Size(), tokens: b.Seq / comm.Size(), whole: b}
}

// PassTokens returns the tokens of a pass over b that this rank has: with cp, a part of a sequence.
func (m *Model) PassTokens(b Batch, train bool) int {
	if c := m.contextOf(b, train); c != nil {
		return c.tokens
	}
	return len(b.Inputs)
}
