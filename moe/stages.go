package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// ForwardStage is Forward for a stage. in is what it needs from other stages, and may be reused
// after the call. The losses of stages add up to that of the model: see Pass.Loss.
//
// Passes add to the gradients in the order of their places, which number the passes of a step from
// 0 on. In a stage with the head, Forward adds to the gradient of the head, so passes begin in that
// order. Other stages may begin them in any order. When the first backward pass of a stage begins,
// those with lower places have begun there, because they have in the stage with the head. The
// passes of a step are of equal size.
func (m *Model) ForwardStage(ex *tensor.Exec, b Batch, place int, in Boundary) (*Pass, error) {
	m.beginStep()
	return m.begin(ex, b, place, b.More || place > 0).forward(ex, in)
}

// EvalStage is Eval for a stage. It returns what other stages need, in the arena of ex.
func (m *Model) EvalStage(ex *tensor.Exec, b Batch, in Boundary) (out Boundary, loss Loss, err error) {
	pass := m.newPass(ex, b, false)
	defer pass.release()
	p := pass.forwardPhase(ex)
	h, err := m.hidden(pass, p, in)
	if err != nil {
		return out, loss, err
	}
	if m.stage.Predict {
		err = m.predict(pass, p, h, in)
		return out, pass.loss, err
	}
	err = pass.setOutput(p, h, in)
	return Boundary{copied(ex, pass.out.Hidden), copied(ex, pass.out.Embedded), copied(ex, pass.out.Ahead)}, pass.loss, err
}

// copied returns a copy in the arena of ex; an invalid tensor if x is invalid.
func copied(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	if !x.Valid() {
		return x
	}
	to := like(&ex.Arena, x)
	tensor.Convert(ex, to.Mat(), x.Mat())
	return to
}

// Output returns what the forward pass of a stage gives to other stages. It is valid until the pass
// ends, which is after they have used it.
func (p *Pass) Output() Boundary { return p.out }

// SetGradient copies the gradient of Output, or a part of it, into the memory of the pass. All of
// it must be there before the backward pass.
func (p *Pass) SetGradient(ex *tensor.Exec, g Boundary) {
	defer ex.Profiling(profile.Rows).End()
	for _, part := range [...]struct {
		to   *tensor.Tensor
		from tensor.Tensor
	}{{&p.dh, g.Hidden}, {&p.dembedded, g.Embedded}, {&p.dahead, g.Ahead}} {
		if part.from.Valid() {
			*part.to = like(p.arena, part.from)
			tensor.Convert(ex, part.to.Mat(), part.from.Mat())
		}
	}
}

// InputGradient returns the gradient of what ForwardStage was given. It is valid between
// BackwardInput, or BackwardLayers, and BackwardWeight.
func (p *Pass) InputGradient() (g Boundary) {
	s := p.model.stage
	if !s.Embed {
		g.Hidden = p.dh
		if s.Ahead > 0 {
			g.Embedded = p.dembedded
		}
	}
	if s.Ahead == 0 {
		g.Ahead = p.dahead
	}
	return g
}

// Train runs forward and backward. It adds the gradients of the objective to all gradients, or sets
// them after [Group.ZeroGrad]. The objective is
//
//	mean cross-entropy + MTPWeight·mean cross-entropy further ahead + balance loss,
//
// with means over the global batch. Train is collective.
func (m *Model) Train(ex *tensor.Exec, b Batch) (Loss, error) {
	p, err := m.Forward(ex, b)
	if err != nil {
		return Loss{}, err
	}
	loss := p.Loss()
	return loss, p.Backward(ex)
}

// Eval runs forward and returns the loss. It is collective.
func (m *Model) Eval(ex *tensor.Exec, b Batch) (Loss, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	_, loss, err := m.EvalStage(ex, b, Boundary{})
	return loss, err
}

// SequenceLosses yields the cross-entropies of this rank's sequences in the last Forward, Train or
// Eval, in nats, each summed over its tokens. They are valid until the next pass begins.
func (m *Model) SequenceLosses(yield func(i int, nats float64) bool) {
	for i, l := range m.measured {
		if !yield(i, rounded(l.main)) {
			return
		}
	}
}
