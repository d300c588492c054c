package ep

// Standard is the ordinary exchange: an all-to-all of counts, then every row is packed, sent by an
// all-to-all-v and unpacked, with one copy of a row per expert that its token chose.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/tensor"
)

// Standard is an [Exchange] over the collectives of a communicator.
type Standard struct {
	comm   *collective.Comm
	layout Layout

	chosen     []int32 // rows to send to each expert
	next       []int32 // running places, by expert
	send, recv parts
	replicas   replicas
}

var _ Exchange = (*Standard)(nil)

// NewStandard returns the exchange of one rank of c for experts experts in total, placed as in
// [NewLayout]. It returns an error if the number of ranks does not divide them.
func NewStandard(c *collective.Comm, experts int) (*Standard, error) {
	layout, err := NewLayout(experts, c.Size())
	if err != nil {
		return nil, err
	}
	return &Standard{
		comm:   c,
		layout: layout,
		chosen: make([]int32, experts),
		next:   make([]int32, experts),
		send:   newParts(c.Size()),
		recv:   newParts(c.Size()),
	}, nil
}

// Layout returns the placement of the experts.
func (s *Standard) Layout() Layout { return s.layout }

// Replicate implements [Exchange].
func (s *Standard) Replicate(world *collective.Comm) (err error) {
	s.replicas, err = newReplicas(world, s.comm, s.layout.Experts)
	return err
}

func (s *Standard) dispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (rows tensor.Tensor, err error) {
	if err := checkDispatch(x, topk); err != nil {
		return rows, err
	}
	tokens, slots := topk.Dim(0), topk.Dim(1)
	if err := s.route(h, topk.I32(), tokens, slots); err != nil {
		return rows, err
	}
	h.y = tensor.Tensor{}
	rows = h.arena(ex).New(x.DType(), h.Received, x.Dim(1))
	mark := ex.Mark()
	defer ex.Release(mark)
	packed := ex.New(x.DType(), h.Sent, x.Dim(1))
	for i, p := range h.packed {
		if p >= 0 {
			copyRow(packed, int(p), x, i/slots)
		}
	}
	return rows, s.toOwners(ex, h, rows, packed)
}

// StartDispatch implements [Exchange]. All rows have arrived when it returns.
func (s *Standard) StartDispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (Arrival, error) {
	rows, err := s.dispatch(ex, h, x, topk)
	return Arrival{rows: rows}, wrap("dispatch", err)
}

// Combine implements [Exchange].
func (s *Standard) Combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	return wrap("combine", s.combine(ex, h, y, weights, out))
}

func (s *Standard) combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	if err := checkCombine(h, y, weights, out); err != nil {
		return err
	}
	h.y = h.arena(ex).New(y.DType(), h.Sent, y.Dim(1))
	if err := s.toSources(ex, h, h.y, y); err != nil {
		return err
	}
	h.weights = append(h.weights[:0], weights.F32()...)
	s.combineRows(ex, h, out, h.y, h.weights)
	return nil
}

// combineRows sets row t of out to the sum over its choices of their packed rows, weighted unless
// weights is nil.
func (s *Standard) combineRows(ex *tensor.Exec, h *Handle, out, packed tensor.Tensor, weights []float32) {
	mark := ex.Mark()
	defer ex.Release(mark)
	sum := ex.New(tensor.FP32, 1, out.Dim(1))
	scratch := ex.New(tensor.FP32, 1, out.Dim(1))
	for t := range h.tokens {
		sum.Zero()
		for i := t * h.slots; i < (t+1)*h.slots; i++ {
			p, w := int(h.packed[i]), float32(1)
			if p < 0 {
				continue
			}
			if weights != nil {
				w = weights[i]
			}
			tensor.AddScaled(sum.F32(), w, load(scratch, packed, p))
		}
		store(out, t, sum)
	}
}

func (s *Standard) combineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (dy tensor.Tensor, err error) {
	if err := checkCombineBackward(h, dout, dweights); err != nil {
		return dy, err
	}
	dtype, hidden := h.y.DType(), h.y.Dim(1)
	dy = h.arena(ex).New(dtype, h.Received, hidden)
	mark := ex.Mark()
	defer ex.Release(mark)
	packed := ex.New(dtype, h.Sent, hidden)
	s.scatter(ex, h, packed, dout, dweights.F32())
	return dy, s.toOwners(ex, h, dy, packed)
}

// StartCombineBackward implements [Exchange]. All rows have arrived when it returns.
func (s *Standard) StartCombineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (Arrival, error) {
	dy, err := s.combineBackward(ex, h, dout, dweights)
	return Arrival{rows: dy}, wrap("combine backward", err)
}

// scatter is the gradient of combineRows: it sets the packed rows to weights[t,k]·dout[t], and
// computes the gradients of the weights.
func (s *Standard) scatter(ex *tensor.Exec, h *Handle, packed, dout tensor.Tensor, dweights []float32) {
	mark := ex.Mark()
	defer ex.Release(mark)
	wide := ex.New(tensor.FP32, 1, dout.Dim(1))
	scratch := ex.New(tensor.FP32, 1, dout.Dim(1))
	for t := range h.tokens {
		d := load(wide, dout, t)
		for i := t * h.slots; i < (t+1)*h.slots; i++ {
			p := int(h.packed[i])
			if p < 0 {
				dweights[i] = 0
				continue
			}
			dweights[i] = tensor.Dot(d, load(scratch, h.y, p))
			tensor.Scale(scratch.F32(), h.weights[i], d)
			store(packed, p, scratch)
		}
	}
}

// DispatchBackward implements [Exchange].
func (s *Standard) DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	return wrap("dispatch backward", s.dispatchBackward(ex, h, drows, dx))
}

func (s *Standard) dispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	if err := checkDispatchBackward(h, drows, dx); err != nil {
		return err
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	packed := ex.New(drows.DType(), h.Sent, drows.Dim(1))
	if err := s.toSources(ex, h, packed, drows); err != nil {
		return err
	}
	s.combineRows(ex, h, dx, packed, nil)
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ep: %s: %w", what, err)
}
