package moe

import (
	"fmt"

	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// NewStage is New for a part of a model on a mesh, in which experts may have replicas. The ranks of
// the mesh are those with the same stage. The exchange must be that of the mesh, and ep must divide
// the number of experts. Stages on one rank may share an exchange. The results have the same bits
// on every mesh.
func NewStage(mesh Mesh, cfg Config, precision Precision, seq int, exchange ep.Exchange, stage Stage) (*Model, error) {
	return build(newBuilder(precision, mesh), mesh, cfg, seq, exchange, stage)
}

// Stage returns the part of a model that m is.
func (m *Model) Stage() Stage { return m.stage }

// DType returns the model's working type.
func (m *Model) DType() tensor.DType { return m.precision.DType }

// InFlight returns the number of training passes whose activations are held.
func (m *Model) InFlight() int { return len(m.inFlight) }

// lastLayer returns the number of the stage's last block.
func (m *Model) lastLayer() int {
	last := m.stage.End - 1
	if m.stage.Ahead == 0 {
		last = min(last, m.Config.Layers-1)
	}
	return max(last, 0)
}

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
	if m.stage.Predict && place != m.begun {
		panic(fmt.Sprintf("moe: pass %d begins after %d others in the stage with the head", place, m.begun))
	}
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

// checkGradient panics if the backward pass has nothing to begin with.
func (p *Pass) checkGradient() {
	missing := func(out, gradient tensor.Tensor) bool { return out.Valid() && !gradient.Valid() }
	if missing(p.out.Hidden, p.dh) || missing(p.out.Embedded, p.dembedded) || missing(p.out.Ahead, p.dahead) {
		panic("moe: the backward pass of a stage needs the gradient of its output: see Pass.SetGradient")
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

// ShareArenas makes the passes of m use the arenas of other, a stage on the same rank. A pass then
// takes the memory that a pass of any of these stages has left. Call it before the first pass of m.
func (m *Model) ShareArenas(other *Model) { m.arenas = other.arenas }
