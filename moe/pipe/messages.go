package pipe

// What passes receive and send. Between ranks it travels through the transport. On one rank a
// forward pass reads the output of the stage before, and a backward pass writes its gradient into
// the pass that waits for it.

import (
	"fmt"

	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// receive returns what a pass needs from other stages. Messages stay in their boxes until free.
func (e *Executor) receive(at pass, main, extra content) (in moe.Boundary, err error) {
	if in.Hidden, err = e.open(message{at.stage, main, at.microbatch}); err != nil {
		return in, err
	}
	in.Embedded, err = e.open(message{at.stage, extra, at.microbatch})
	return in, err
}

// await waits until an action has what it receives, which receive then finds at once.
func (e *Executor) await(ex *tensor.Exec, a pipeline.Action) (err error) {
	defer ex.Profiling(profile.Messages).End()
	at := pass{a.Stage, a.Microbatch}
	switch a.Kind {
	case pipeline.Forward:
		_, err = e.receive(at, hidden, embedded)
	case pipeline.Backward, pipeline.InputGrad:
		_, err = e.receive(at, hiddenGradient, embeddedGradient)
	}
	return err
}

// open returns the tensor of a message; an invalid one if there is no such message, or if it is a
// gradient from the same rank, which is in the pass.
func (e *Executor) open(m message) (t tensor.Tensor, err error) {
	from := m.from(len(e.stages))
	box, ok := e.plan.boxes[m]
	if !ok {
		return e.local(m, from), nil
	}
	bytes, err := e.transport.Recv(e.plan.holders[from], box)
	if err != nil {
		return t, err
	}
	to := e.stages[m.to]
	tokens, dim := e.tokens, to.Config.Dim
	if want := tokens * dim * to.DType().Size(); len(bytes) != want {
		return t, fmt.Errorf("stage %d has sent %d bytes for %d tokens, want %d", from, len(bytes), tokens, want)
	}
	if tokens == 0 {
		return tensor.New(to.DType(), 0, dim), nil
	}
	return tensor.FromBytes(bytes, to.DType(), tokens, dim), nil
}

// local returns an activation of another stage of this rank.
func (e *Executor) local(m message, from int) (t tensor.Tensor) {
	out := e.outputs[pass{from, m.microbatch}]
	switch {
	case m.content == hidden:
		t = out.Hidden
	case m.content == embedded && m.to == len(e.stages)-1:
		t = out.Embedded
	}
	return t
}

// free empties the boxes of what a pass has received.
func (e *Executor) free(at pass, all ...content) error {
	for _, c := range all {
		m := message{at.stage, c, at.microbatch}
		if box, ok := e.plan.boxes[m]; ok {
			if err := e.transport.Free(e.plan.holders[m.from(len(e.stages))], box); err != nil {
				return err
			}
		}
	}
	return nil
}

// send gives other stages what a pass has computed for them.
func (e *Executor) send(ex *tensor.Exec, at pass, out moe.Boundary, main, extra content) error {
	next, far := at.stage+1, len(e.stages)-1
	if main == hiddenGradient {
		next, far = at.stage-1, 0
	}
	if err := e.post(ex, message{next, main, at.microbatch}, moe.Boundary{Hidden: out.Hidden}, out.Hidden); err != nil {
		return err
	}
	return e.post(ex, message{far, extra, at.microbatch}, moe.Boundary{Embedded: out.Embedded}, out.Embedded)
}

// post sends a tensor, unless it is invalid, because there is nothing to send.
func (e *Executor) post(ex *tensor.Exec, m message, as moe.Boundary, t tensor.Tensor) error {
	if !t.Valid() {
		return nil
	}
	if box, ok := e.plan.boxes[m]; ok {
		defer ex.Profiling(profile.Messages).End()
		return e.transport.Send(e.plan.holders[m.to], box, t.Bytes())
	}
	if m.content == hiddenGradient || m.content == embeddedGradient {
		e.passes[pass{m.to, m.microbatch}].SetGradient(ex, as)
	}
	return nil
}
