package ep

// OneSided is the exchange of ranks that reach each other's memory: every row is stored once, where the expert that gets it will read
// it, and results are read where the experts left them. Nothing is packed, unpacked or negotiated: from the counts of all ranks, which
// travel with a meeting, each computes the final place of its rows.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/tensor"
)

// OneSided is an [Exchange] over memory that all ranks reach. Its sums have the bits of [Standard]'s.
//
// Where ranks are processes, the arenas of the Execs that its calls get must be memory of the communicator's Allocator, and the rows
// that Combine is given must stay as they are until CombineBackward.
type OneSided struct {
	comm   *collective.Comm
	layout Layout

	chosen []int32 // rows of this rank for each expert
	all    []int32 // [ranks, experts]: the same of every rank
	next   []int32 // running places, by expert
}

var _ Exchange = (*OneSided)(nil)

// NewOneSided returns the exchange of one rank of c for this many experts in all, placed as [NewLayout] does. It is an
// error if the number of ranks does not divide them.
func NewOneSided(c *collective.Comm, experts int) (*OneSided, error) {
	layout, err := NewLayout(experts, c.Size())
	if err != nil {
		return nil, err
	}
	return &OneSided{
		comm: c, layout: layout,
		chosen: make([]int32, experts), all: make([]int32, experts*c.Size()), next: make([]int32, experts),
	}, nil
}

// Layout says which experts this exchange has where.
func (s *OneSided) Layout() Layout { return s.layout }

// Dispatch implements [Exchange].
func (s *OneSided) Dispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (tensor.Tensor, error) {
	rows, err := s.dispatch(ex, h, x, topk)
	return rows, wrap("dispatch", err)
}

func (s *OneSided) dispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (rows tensor.Tensor, err error) {
	if err := checkDispatch(x, topk); err != nil {
		return rows, err
	}
	if slots := topk.Dim(1); slots > mostSlots {
		return rows, fmt.Errorf("topk is %s: at most %d slots are supported, use the standard exchange", describe(topk), mostSlots)
	}
	if err := s.route(h, topk.I32(), topk.Dim(0), topk.Dim(1)); err != nil {
		return rows, err
	}
	h.y = tensor.Tensor{}
	rows = ex.New(x.DType(), h.Received, x.Dim(1))
	w, err := s.comm.Open(collective.KindDispatch, rowBytes(x), x.DType().Size(), rows.Bytes(), nil)
	if err != nil {
		return rows, err
	}
	t := transfer{h: h, there: s.rowsOf(h, w.First, x), here: x}
	tensor.Parallel(ex, h.tokens, h.Sent*x.Dim(1)*copyWork, t, put)
	return rows, w.Close(h.Sent * rowBytes(x))
}

// Combine implements [Exchange].
func (s *OneSided) Combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	return wrap("combine", s.combine(ex, h, y, weights, out))
}

func (s *OneSided) combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	if err := checkCombine(h, y, weights, out); err != nil {
		return err
	}
	h.y = y
	h.weights = append(h.weights[:0], weights.F32()...)
	return s.gather(ex, h, y, h.weights, out)
}

// gather sets row t of out to the sum over its choices of the peers' rows, weighted unless weights is nil.
func (s *OneSided) gather(ex *tensor.Exec, h *Handle, rows tensor.Tensor, weights []float32, out tensor.Tensor) error {
	w, err := s.comm.Open(collective.KindCombine, rowBytes(rows), rows.DType().Size(), rows.Bytes(), nil)
	if err != nil {
		return err
	}
	t := transfer{h: h, there: s.rowsOf(h, w.First, rows), here: out, weights: weights}
	tensor.Parallel(ex, h.tokens, h.Sent*rows.Dim(1)*copyWork, t, sum)
	return w.Close(h.Sent * rowBytes(rows))
}

// CombineBackward implements [Exchange].
func (s *OneSided) CombineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (tensor.Tensor, error) {
	dy, err := s.combineBackward(ex, h, dout, dweights)
	return dy, wrap("combine backward", err)
}

func (s *OneSided) combineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (dy tensor.Tensor, err error) {
	if err := checkCombineBackward(h, dout, dweights); err != nil {
		return dy, err
	}
	y := h.y
	dy = ex.New(y.DType(), h.Received, y.Dim(1))
	w, err := s.comm.Open(collective.KindDispatch, rowBytes(y), y.DType().Size(), dy.Bytes(), y.Bytes())
	if err != nil {
		return dy, err
	}
	t := transfer{h: h, there: s.rowsOf(h, w.First, dy), y: s.seconds(h, w.Second, y), here: dout, weights: h.weights, dweights: dweights.F32()}
	tensor.Parallel(ex, h.tokens, 2*h.Sent*y.Dim(1)*copyWork, t, putScaled)
	return dy, w.Close(2 * h.Sent * rowBytes(y))
}

// DispatchBackward implements [Exchange].
func (s *OneSided) DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	return wrap("dispatch backward", s.dispatchBackward(ex, h, drows, dx))
}

func (s *OneSided) dispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	if err := checkDispatchBackward(h, drows, dx); err != nil {
		return err
	}
	return s.gather(ex, h, drows, nil, dx)
}

// route fills the handle from topk, [tokens, slots] expert ids, meeting the other ranks to exchange counts.
func (s *OneSided) route(h *Handle, topk []int32, tokens, slots int) error {
	h.tokens, h.slots = tokens, slots
	if err := countChosen(s.chosen, topk, slots); err != nil {
		return err
	}
	if err := collective.AllGather(s.comm, s.all, s.chosen); err != nil {
		return err
	}
	s.place(h, topk)
	s.receive(h)
	return nil
}

// place gives every choice its place among the rows of its expert's rank.
func (s *OneSided) place(h *Handle, topk []int32) {
	h.SendCounts = resize(h.SendCounts, s.layout.Ranks)
	clear(h.SendCounts)
	h.Sent = 0
	at := int32(0)
	for e := range s.next {
		if e%s.layout.PerRank == 0 {
			at = 0
		}
		for r := range s.layout.Ranks {
			if r == s.comm.Rank() {
				s.next[e] = at
			}
			at += s.all[r*s.layout.Experts+e]
		}
		h.SendCounts[s.layout.Owner(e)] += int(s.chosen[e])
		h.Sent += int(s.chosen[e])
	}
	h.packed, h.owners = resize(h.packed, len(topk)), resize(h.owners, len(topk))
	for i, e := range topk {
		if e < 0 {
			h.packed[i] = -1
			continue
		}
		h.owners[i] = int32(s.layout.Owner(int(e)))
		h.packed[i] = s.next[e]
		s.next[e]++
	}
}

// receive derives the groups of this rank's experts.
func (s *OneSided) receive(h *Handle) {
	h.RecvCounts, h.GroupEnds = resize(h.RecvCounts, s.layout.Ranks), resize(h.GroupEnds, s.layout.PerRank)
	clear(h.RecvCounts)
	lo, hi := s.layout.Local(s.comm.Rank())
	end := int32(0)
	for e := lo; e < hi; e++ {
		for r := range s.layout.Ranks {
			n := s.all[r*s.layout.Experts+e]
			h.RecvCounts[r] += int(n)
			end += n
		}
		h.GroupEnds[e-lo] = end
	}
	h.Received = int(end)
}
