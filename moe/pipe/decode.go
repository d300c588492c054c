package pipe

// Generation: tokens pass all stages one after the other. A tensor that is longer than a box
// travels in pieces.

import (
	"slices"

	"spmoe/moe"
	"spmoe/tensor"
)

// receivePieces is open for a tensor of any number of tokens. It copies what comes from another
// rank into the arena of ex.
func (e *Executor) receivePieces(ex *tensor.Exec, m message) (t tensor.Tensor, err error) {
	from := e.plan.sender(m)
	box, ok := e.plan.boxes[m]
	if !ok {
		return e.local(m, from), nil
	}
	to := e.stages[m.to]
	t = ex.New(to.DType(), e.tokens, to.Config.ResidualDim())
	for rest := t.Bytes(); len(rest) > 0; {
		piece, err := e.boxes.Recv(e.plan.holders[from], box)
		if err != nil {
			return t, err
		}
		rest = rest[copy(rest, piece):]
		if err := e.boxes.Free(e.plan.holders[from], box); err != nil {
			return t, err
		}
	}
	return t, nil
}

// sendPieces sends a tensor to another rank, if it is valid and the message crosses ranks.
func (e *Executor) sendPieces(m message, t tensor.Tensor) error {
	box, ok := e.plan.boxes[m]
	if !ok || !t.Valid() {
		return nil
	}
	for rest := t.Bytes(); len(rest) > 0; {
		n := min(len(rest), e.boxes.Bytes())
		if err := e.boxes.Send(e.plan.holders[m.to], box, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// NewDecoder returns a decoder of all stages: see [moe.NewStageDecoder].
func (r *Rank) NewDecoder(ex *tensor.Exec, context int) (*moe.Decoder, error) {
	return moe.NewStageDecoder(ex, context, r.Models, relay{r.Executor})
}

// relay implements [moe.Relay].
type relay struct{ *Executor }

func (r relay) Receive(ex *tensor.Exec, to *moe.Model, tokens int) (tensor.Tensor, error) {
	r.tokens = tokens
	return r.receivePieces(ex, message{to: slices.Index(r.stages, to), content: hidden})
}

func (r relay) Send(ex *tensor.Exec, from *moe.Model, h tensor.Tensor) error {
	i := slices.Index(r.stages, from)
	if i+1 < len(r.stages) && r.stages[i+1] != nil {
		own := ex.New(h.DType(), h.Dim(0), h.Dim(1))
		tensor.Convert(ex, own.Mat(), h.Mat())
		r.outputs[pass{stage: i}] = moe.Boundary{Hidden: own}
	}
	return r.sendPieces(message{to: i + 1, content: hidden}, h)
}
