package pipe

import (
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

// Executor runs the list of one rank.
type Executor struct {
	plan   *Plan
	rank   int
	stages []*moe.Model // nil: of another rank
	boxes  *collective.Mailboxes

	batches []moe.Batch // of a step
	tokens  int         // of each
	passes  map[pass]*moe.Pass
	outputs map[pass]moe.Boundary // of passes
	loss    moe.Loss

	turns *collective.Turns // of overlapped pairs; nil: they do not overlap
	twin  *tensor.Exec      // of their second actions
}

// pass names a pass by its stage and micro-batch.
type pass struct{ stage, microbatch int }

// Run runs the schedule over the parts of a batch, one per micro-batch, which are of equal size. It
// adds the gradients of the objective to those of the stages, or sets them after ZeroGrad, which
// must come before each step. It returns the sums of this rank's part of the losses: those of all
// ranks add up to the loss of the batch.
//
// Every rank calls Run. Those with the same stages run their lists together, because the passes of
// a stage are collective.
func (e *Executor) Run(ex *tensor.Exec, parts []moe.Batch) (moe.Loss, error) {
	s := e.plan.Schedule
	e.begin(e.tokensOf(parts[0], true))
	e.batches = parts
	list := s.Ranks[e.rank]
	for i, slot := range list {
		e.expect(list[i+1:])
		run := e.serial
		if e.turns != nil && overlaps(slot) {
			run = e.overlapped
		}
		if a, err := run(ex, slot); err != nil {
			return e.loss, fmt.Errorf("schedule %s: %v, action %d of rank %d: %w", s.Name, a, i, e.rank, err)
		}
	}
	return e.loss, nil
}

// tokensOf returns the tokens of a batch that this rank has.
func (e *Executor) tokensOf(b moe.Batch, train bool) int {
	i := slices.IndexFunc(e.stages, func(m *moe.Model) bool { return m != nil })
	return e.stages[i].PassTokens(b, train)
}

// begin forgets what an earlier call may have left when it failed.
func (e *Executor) begin(tokens int) {
	e.tokens, e.loss = tokens, moe.Loss{}
	clear(e.passes)
	clear(e.outputs)
}

// Eval runs a forward pass of a batch through all stages and returns this rank's part of the loss.
// Every rank calls it, between steps. The batch is at most as large as a micro-batch in training.
func (e *Executor) Eval(ex *tensor.Exec, b moe.Batch) (moe.Loss, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	e.begin(e.tokensOf(b, false))
	for i, m := range e.stages {
		if m == nil {
			continue
		}
		at := pass{stage: i}
		in, err := e.receive(at, false)
		if err != nil {
			return e.loss, err
		}
		out, loss, err := m.EvalStage(ex, b, in)
		if err != nil {
			return e.loss, fmt.Errorf("evaluation of stage %d: %w", i, err)
		}
		e.loss.Add(loss)
		if err := e.sendOutput(ex, at, out); err != nil {
			return e.loss, err
		}
	}
	return e.loss, nil
}

// serial runs the actions of a slot one after the other. With an error it returns the action that
// has failed.
func (e *Executor) serial(ex *tensor.Exec, slot pipeline.Slot) (a pipeline.Action, err error) {
	for _, a = range slot {
		if err := e.perform(ex, a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// perform waits for the messages that an action needs, and runs it. Gradients are summed over ranks
// after the step, not in it.
func (e *Executor) perform(ex *tensor.Exec, a pipeline.Action) error {
	if err := e.await(ex, a); err != nil {
		return err
	}
	at := pass{a.Stage, a.Microbatch}
	switch a.Kind {
	case pipeline.Forward:
		return e.forward(ex, at)
	case pipeline.Backward:
		if err := e.backward(ex, at, (*moe.Pass).BackwardLayers); err != nil {
			return err
		}
		return e.weights(ex, at)
	case pipeline.InputGrad:
		return e.backward(ex, at, (*moe.Pass).BackwardInput)
	case pipeline.WeightGrad:
		return e.weights(ex, at)
	}
	return nil
}

// forward is F.
func (e *Executor) forward(ex *tensor.Exec, at pass) error {
	b := e.batches[at.microbatch]
	b.More = at.microbatch+1 < len(e.batches)
	in, err := e.receive(at, false)
	if err != nil {
		return err
	}
	p, err := e.stages[at.stage].ForwardStage(ex, b, at.microbatch, in)
	if err != nil {
		return err
	}
	e.passes[at] = p
	e.loss.Add(p.Loss())
	return e.sendOutput(ex, at, p.Output())
}

// sendOutput ends a forward pass: it frees its input, and gives other stages its output.
func (e *Executor) sendOutput(ex *tensor.Exec, at pass, out moe.Boundary) error {
	e.outputs[at] = out
	if err := e.free(at, false); err != nil {
		return err
	}
	return e.send(ex, at, out, false)
}

// backward is I, or the beginning of B.
func (e *Executor) backward(ex *tensor.Exec, at pass, run func(*moe.Pass, *tensor.Exec) error) error {
	p := e.passes[at]
	g, err := e.receive(at, true)
	if err != nil {
		return err
	}
	p.SetGradient(ex, g)
	if err := e.free(at, true); err != nil {
		return err
	}
	if err := run(p, ex); err != nil {
		return err
	}
	return e.send(ex, at, p.InputGradient(), true)
}

// weights is W, or the end of B.
func (e *Executor) weights(ex *tensor.Exec, at pass) error {
	p := e.passes[at]
	delete(e.passes, at)
	delete(e.outputs, at)
	return p.BackwardWeight(ex)
}
