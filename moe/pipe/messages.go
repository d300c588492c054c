package pipe

// What passes receive and send. Between ranks it travels through boxes. On one rank a
// forward pass reads the output of the stage before, and a backward pass writes its gradient into
// the pass that waits for it.

import (
	"slices"

	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// receive returns what a pass needs from other stages. Messages stay in their boxes until free.
func (e *Executor) receive(at pass, gradients bool) (in moe.Boundary, err error) {
	for c := range contents {
		if *c.of(&in), err = e.open(message{at.stage, c, gradients, at.microbatch}); err != nil {
			return in, err
		}
	}
	return in, nil
}

// await waits until an action has what it receives, which receive then finds at once.
func (e *Executor) await(ex *tensor.Exec, a pipeline.Action) (err error) {
	defer ex.Profiling(profile.Messages).End()
	if gradients, ok := receives(a.Kind); ok {
		_, err = e.receive(pass{a.Stage, a.Microbatch}, gradients)
	}
	return err
}

// receives reports whether actions of a kind receive messages, and whether these are gradients.
func receives(k pipeline.Kind) (gradients, ok bool) {
	return k != pipeline.Forward, k == pipeline.Forward || k == pipeline.Backward || k == pipeline.InputGrad
}

// expect makes the messages of the next slot come while the current one runs.
func (e *Executor) expect(rest []pipeline.Slot) {
	i := slices.IndexFunc(rest, func(s pipeline.Slot) bool { return len(s) > 0 })
	if i < 0 {
		return
	}
	for _, a := range rest[i] {
		gradients, ok := receives(a.Kind)
		if !ok {
			continue
		}
		for c := range contents {
			m := message{a.Stage, c, gradients, a.Microbatch}
			if box, ok := e.plan.boxes[m]; ok {
				e.boxes.Expect(e.plan.holders[e.plan.sender(m)], box)
			}
		}
	}
}

// open returns the tensor of a message; an invalid one if there is no such message, or if it is a
// gradient from the same rank, which is in the pass.
func (e *Executor) open(m message) (t tensor.Tensor, err error) {
	from := e.plan.sender(m)
	box, ok := e.plan.boxes[m]
	if !ok {
		return e.local(m, from), nil
	}
	bytes, err := e.boxes.Recv(e.plan.holders[from], box)
	if err != nil {
		return t, err
	}
	to := e.stages[m.to]
	tokens, dim := e.tokens, to.Config.ResidualDim()
	if tokens == 0 {
		return tensor.New(to.DType(), 0, dim), nil
	}
	return tensor.FromBytes(bytes, to.DType(), tokens, dim), nil
}

// local returns an activation of another stage of this rank; an invalid tensor if there is none.
func (e *Executor) local(m message, from int) (t tensor.Tensor) {
	if m.gradient {
		return t
	}
	out := e.outputs[pass{from, m.microbatch}]
	return *m.content.of(&out)
}

// free empties the boxes of what a pass has received.
func (e *Executor) free(at pass, gradients bool) error {
	for c := range contents {
		m := message{at.stage, c, gradients, at.microbatch}
		if box, ok := e.plan.boxes[m]; ok {
			if err := e.boxes.Free(e.plan.holders[e.plan.sender(m)], box); err != nil {
				return err
			}
		}
	}
	return nil
}

// send gives other stages what a pass has computed for them.
func (e *Executor) send(ex *tensor.Exec, at pass, out moe.Boundary, gradients bool) error {
	for c := range contents {
		to, t := e.plan.receiver(at.stage, c, gradients), *c.of(&out)
		if to < 0 || !t.Valid() {
			continue
		}
		if box, ok := e.plan.boxes[message{to, c, gradients, at.microbatch}]; ok {
			profiled := ex.Profiling(profile.Messages)
			err := e.boxes.Send(e.plan.holders[to], box, t.Bytes())
			profiled.End()
			if err != nil {
				return err
			}
		} else if gradients {
			var g moe.Boundary
			*c.of(&g) = t
			e.passes[pass{to, at.microbatch}].SetGradient(ex, g)
		}
	}
	return nil
}
