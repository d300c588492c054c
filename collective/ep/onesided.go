package ep

// OneSided is the exchange of ranks that can access each other's memory. Every row is stored once,
// where its expert will read it, and results are read where the experts left them. There is no
// packing, unpacking or negotiation: each rank computes the final places of its rows from the
// counts of all ranks, which travel with a meeting.

import (
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/tensor"
)

// OneSided is an [Exchange] over memory that all ranks can access. Its sums have the bits of
// [Standard]'s.
//
// If ranks are processes, the arenas of the Execs of its calls must be memory of the communicator's
// Allocator, and the rows passed to Combine must not change until CombineBackward.
type OneSided struct {
	Options Options // to be set before the first call

	comm   *collective.Comm
	host   *collective.Comm // the ranks of this host, which access each other's memory
	hosts  *internode       // nil if there is one host
	layout Layout

	replicas replicas

	chosen []int32 // rows of this rank per expert
	all    []int32 // [ranks, experts]: the same for every rank
	next   []int32 // running places, by expert
}

var _ Exchange = (*OneSided)(nil)

// NewOneSided returns the exchange of one rank of c for experts experts in total, placed as in
// [NewLayout]. It returns an error if the number of ranks does not divide them. All ranks of c call
// it together.
func NewOneSided(c *collective.Comm, experts int) (*OneSided, error) {
	layout, err := NewLayout(experts, c.Size())
	if err != nil {
		return nil, err
	}
	s := newOneSided(c, layout)
	if len(c.Hosts()) == 1 {
		return s, nil
	}
	if s.host, err = c.Split(c.Host(), c.Rank()); err != nil {
		return nil, err
	}
	messages, err := c.Split(0, c.Rank())
	if err != nil {
		return nil, err
	}
	s.hosts = newInternode(s, messages)
	return s, nil
}

// newOneSided returns the exchange of one host.
func newOneSided(c *collective.Comm, layout Layout) *OneSided {
	experts := layout.Experts
	return &OneSided{
		comm: c, host: c, layout: layout,
		chosen: make([]int32, experts), all: make([]int32, experts*c.Size()), next: make([]int32, experts),
	}
}

// isLocal reports whether a rank is on this host.
func (s *OneSided) isLocal(rank int) bool { return s.hosts == nil || s.hosts.number[rank] >= 0 }

// number returns the number of a rank of this host in the host's communicator.
func (s *OneSided) number(rank int) int {
	if s.hosts == nil {
		return rank
	}
	return s.hosts.number[rank]
}

// Layout returns the placement of the experts.
func (s *OneSided) Layout() Layout { return s.layout }

// Replicate implements [Exchange].
func (s *OneSided) Replicate(world *collective.Comm) (err error) {
	s.replicas, err = newReplicas(world, s.comm, s.layout.Experts)
	return err
}

// StartDispatch implements [Exchange].
func (s *OneSided) StartDispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (Arrival, error) {
	a, err := s.dispatch(ex, h, x, topk)
	return a, wrap("dispatch", err)
}

func (s *OneSided) dispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (a Arrival, err error) {
	if err := checkOneSided(x, topk); err != nil {
		return a, err
	}
	if err := s.route(h, topk.I32(), topk.Dim(0), topk.Dim(1)); err != nil {
		return a, err
	}
	if err := s.checkPlaces(h); err != nil {
		return a, err
	}
	h.y = tensor.Tensor{}
	a = newArrival(ex, "dispatch", s.Options.Dispatch, h, x)
	t := s.transfer(h, x)
	if err := s.open(&a, h, &t, tensor.Tensor{}); err != nil {
		return a, err
	}
	if s.hosts != nil {
		if a.rest, err = s.hosts.sendRows(ex, h, t, s.Options.Dispatch); err != nil {
			return a, err
		}
	}
	work := put
	if s.Options.Dispatch == MXFP8 {
		work = putQuantized
	}
	fault.Point(fault.BeforePut)
	tensor.Parallel(ex, h.tokens, h.Sent*x.Dim(1)*copyWork, t, work)
	fault.Point(fault.AfterPut)
	return a, nil
}

// openWindow lets the peers store the rows that are to arrive, and read y if it is given.
func (s *OneSided) openWindow(a *Arrival, h *Handle, y tensor.Tensor) (err error) {
	var readable []byte
	a.bytes = h.Sent * a.rowBytes()
	if y.Valid() {
		readable = y.Bytes()
		a.bytes += h.Sent * rowBytes(y)
	}
	a.window, err = s.host.Open(collective.KindDispatch, a.rowBytes(), a.elem(), a.room.Bytes(), readable)
	return err
}

// open is openWindow, and records where the rows of the peers are.
func (s *OneSided) open(a *Arrival, h *Handle, t *transfer, y tensor.Tensor) error {
	err := s.openWindow(a, h, y)
	if err != nil {
		return err
	}
	hidden := a.rows.Dim(1)
	codes := peerRows{hidden: hidden, dtype: a.room.DType()}
	first := func(rank int) []byte { return a.window.First(s.number(rank)) }
	if !a.MX.Codes.Valid() {
		t.there, err = s.peerRows(h, 0, codes, first)
	} else {
		// Codes and scales share a buffer, whose size follows from the counts.
		t.there, err = s.peerRows(h, 0, codes, func(rank int) []byte { return upTo(first(rank), scalesAt(int(h.perRank[rank]), hidden)) })
		if err == nil {
			t.scales, err = s.peerRows(h, 1, peerRows{hidden: rowScales(hidden), dtype: tensor.UINT8}, func(rank int) []byte {
				return from(first(rank), scalesAt(int(h.perRank[rank]), hidden))
			})
		}
	}
	if err == nil && y.Valid() {
		t.y, err = s.peerRows(h, 2, peerRows{hidden: hidden, dtype: y.DType()}, func(rank int) []byte { return a.window.Second(s.number(rank)) })
	}
	return closed(a.window, err)
}

// closed closes a window that is useless because of an error, which all ranks have. No rank may
// wait for the others in it.
func closed(w collective.Window, err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, w.Close(0))
}

// upTo and from return the parts of a buffer before and after an offset, as far as they exist.
func upTo(b []byte, at int) []byte { return b[:min(at, len(b))] }
func from(b []byte, at int) []byte { return b[min(at, len(b)):] }

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
	return s.combineRows(ex, h, y, h.weights, out)
}

// combineRows sets row t of out to the sum over its choices of the peers' rows, weighted unless
// weights is nil.
func (s *OneSided) combineRows(ex *tensor.Exec, h *Handle, rows tensor.Tensor, weights []float32, out tensor.Tensor) error {
	if err := s.checkPlaces(h); err != nil {
		return err
	}
	w, err := s.host.Open(collective.KindCombine, rowBytes(rows), rows.DType().Size(), rows.Bytes(), nil)
	if err != nil {
		return err
	}
	t := s.transfer(h, out)
	t.weights = weights
	t.there, err = s.peerRows(h, 0, peerRows{hidden: rows.Dim(1), dtype: rows.DType()}, func(rank int) []byte { return w.First(s.number(rank)) })
	if err != nil {
		return closed(w, err)
	}
	if s.hosts != nil {
		if err := s.hosts.bringBack(h, &t); err != nil {
			return err
		}
	}
	fault.Point(fault.BeforeGet)
	tensor.Parallel(ex, h.tokens, h.Sent*rows.Dim(1)*copyWork, t, sum)
	fault.Point(fault.AfterGet)
	return w.Close(h.Sent * rowBytes(rows))
}

// StartCombineBackward implements [Exchange].
func (s *OneSided) StartCombineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (Arrival, error) {
	a, err := s.combineBackward(ex, h, dout, dweights)
	return a, wrap("combine backward", err)
}

func (s *OneSided) combineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (a Arrival, err error) {
	if err := checkCombineBackward(h, dout, dweights); err != nil {
		return a, err
	}
	if err := s.checkPlaces(h); err != nil {
		return a, err
	}
	a = newArrival(ex, "combine backward", s.Options.CombineBackward, h, h.y)
	t := s.transfer(h, dout)
	t.weights, t.dweights = h.weights, dweights.F32()
	if err := s.open(&a, h, &t, h.y); err != nil {
		return a, err
	}
	if s.hosts != nil {
		if a.rest, err = s.hosts.sendGradients(h, t); err != nil {
			return a, err
		}
	}
	tensor.Parallel(ex, h.tokens, 2*h.Sent*h.y.Dim(1)*copyWork, t, putScaled)
	return a, nil
}

// DispatchBackward implements [Exchange].
func (s *OneSided) DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	return wrap("dispatch backward", s.dispatchBackward(ex, h, drows, dx))
}

func (s *OneSided) dispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	if err := checkDispatchBackward(h, drows, dx); err != nil {
		return err
	}
	return s.combineRows(ex, h, drows, nil, dx)
}

// route fills the handle from topk, [tokens, slots] expert ids. It meets the other ranks to
// exchange counts.
func (s *OneSided) route(h *Handle, topk []int32, tokens, slots int) error {
	h.tokens, h.slots = tokens, slots
	if err := countChosen(s.chosen, topk, slots); err != nil {
		return err
	}
	if err := s.count(topk, slots); err != nil {
		return err
	}
	if err := checkCounts(s.all, s.layout.Experts); err != nil {
		return err
	}
	if s.replicas.world == nil {
		s.Options.limit(s.all, s.layout.Experts)
	}
	s.assignRows(h, topk)
	s.receive(h)
	s.replicas.countWhole(h, s.layout, s.comm.Rank())
	if s.hosts != nil {
		s.hosts.plan(h, topk)
	}
	return nil
}

// count tells all ranks how many rows each rank has per expert.
func (s *OneSided) count(topk []int32, slots int) error {
	if s.hosts != nil {
		if err := s.hosts.count(topk, slots); err != nil || s.replicas.world == nil {
			return err
		}
	}
	if s.replicas.world == nil {
		return collective.AllGather(s.comm, s.all, s.chosen)
	}
	all, err := s.replicas.count(s.chosen, s.Options)
	copy(s.all, all)
	return err
}

// checkPlaces returns an error if a choice has a place that its owner does not have: the handle has
// changed in memory, and rows would be stored or read anywhere.
func (s *OneSided) checkPlaces(h *Handle) error {
	if n := h.tokens * h.slots; len(h.perRank) != s.layout.Ranks || len(h.packed) != n || len(h.owners) != n {
		return fmt.Errorf("the places of rank %d are damaged: it has %d for %d choices", s.comm.Rank(), len(h.packed), n)
	}
	for i, place := range h.packed {
		if place >= 0 && (uint(h.owners[i]) >= uint(len(h.perRank)) || place >= h.perRank[h.owners[i]]) {
			return fmt.Errorf("the places of rank %d are damaged: choice %d has row %d of rank %d", s.comm.Rank(), i, place, h.owners[i])
		}
	}
	return nil
}

// transfer describes the part of an exchange that stays on this host.
func (s *OneSided) transfer(h *Handle, here tensor.Tensor) transfer {
	t := transfer{h: h, owners: h.owners, places: h.packed, here: here}
	if s.hosts != nil {
		t.places = h.routes.near
	}
	return t
}

// assignRows assigns every accepted choice its place among the rows of the expert's rank.
func (s *OneSided) assignRows(h *Handle, topk []int32) {
	h.SendCounts, h.perRank = resize(h.SendCounts, s.layout.Ranks), resize(h.perRank, s.layout.Ranks)
	clear(h.SendCounts)
	clear(h.perRank)
	h.Sent, h.Dropped = 0, 0
	taken := s.chosen
	for owner := range s.layout.Ranks {
		h.perRank[owner] = s.starts(s.comm.Rank(), owner, s.next)
		for e, hi := s.layout.Local(owner); e < hi; e++ {
			taken[e] = s.all[s.comm.Rank()*s.layout.Experts+e]
			h.SendCounts[owner] += int(taken[e])
			h.Sent += int(taken[e])
		}
	}
	h.packed, h.owners = resize(h.packed, len(topk)), resize(h.owners, len(topk))
	for i, e := range topk {
		h.packed[i] = -1
		if e < 0 {
			continue
		}
		if taken[e] == 0 {
			h.Dropped++
			continue
		}
		h.owners[i], h.packed[i] = int32(s.layout.Owner(int(e))), s.next[e]
		s.next[e]++
		taken[e]--
	}
}

// starts sets next, for the experts of owner, to where the rows of a rank begin among those that
// owner receives. It returns the number of rows that owner receives.
func (s *OneSided) starts(rank, owner int, next []int32) (end int32) {
	for e, hi := s.layout.Local(owner); e < hi; e++ {
		for r := range s.layout.Ranks {
			if r == rank {
				next[e] = end
			}
			end += s.all[r*s.layout.Experts+e]
		}
	}
	return end
}

// receive computes the groups of this rank's experts.
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
