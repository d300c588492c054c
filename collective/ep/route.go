package ep

// Routing: from the experts that this rank's tokens chose to the place of every row on the wire and
// on its owner.

import (
	"fmt"
	"math"

	"spmoe/collective"
)

// route fills the handle from topk, [tokens, slots] expert ids. It meets the other ranks to
// exchange counts.
func (s *Standard) route(h *Handle, topk []int32, tokens, slots int) error {
	h.tokens, h.slots = tokens, slots
	if err := countChosen(s.chosen, topk, slots); err != nil {
		return err
	}
	h.blockRows = resize(h.blockRows, s.layout.Experts)
	if err := s.count(h.blockRows); err != nil {
		return err
	}
	s.placeSent(h, topk)
	s.placeReceived(h)
	s.replicas.countWhole(h, s.layout, s.comm.Rank())
	return nil
}

// count sets received, [ranks, experts of this rank], to the rows that each rank sends.
func (s *Standard) count(received []int32) error {
	if s.replicas.world == nil {
		if err := collective.AllToAll(s.comm, received, s.chosen); err != nil {
			return err
		}
		return checkCounts(received, s.layout.PerRank)
	}
	all, err := s.replicas.count(s.chosen, Options{})
	if err != nil {
		return err
	}
	lo, hi := s.layout.Local(s.comm.Rank())
	for r := range s.layout.Ranks {
		copy(received[r*s.layout.PerRank:], all[r*s.layout.Experts:][lo:hi])
	}
	return nil
}

// countChosen sets chosen to the number of rows that topk sends to each expert.
func countChosen(chosen, topk []int32, slots int) error {
	clear(chosen)
	for i, e := range topk {
		if e == -1 {
			continue
		}
		if e < 0 || int(e) >= len(chosen) {
			return fmt.Errorf("topk[%d,%d] is %d: want an expert from 0 to %d, or -1 for no choice",
				i/slots, i%slots, e, len(chosen)-1)
		}
		chosen[e]++
	}
	return nil
}

// mostRows is the maximum number of rows that all ranks together can move, because places of rows
// are int32.
const mostRows = math.MaxInt32 / 2

// checkCounts checks numbers of rows that came from the ranks, each numbers per rank, because a
// faulty process may send any.
func checkCounts(rows []int32, each int) error {
	total := 0
	for i, n := range rows {
		if total += int(n); n < 0 || total > mostRows {
			return fmt.Errorf("the counts of rank %d are damaged: number %d is %d, and all up to it add up to %d rows", i/each, i%each, n, total)
		}
	}
	return nil
}

// placeSent assigns every choice its place in packed order, and counts rows by destination.
func (s *Standard) placeSent(h *Handle, topk []int32) {
	h.SendCounts = resize(h.SendCounts, s.layout.Ranks)
	clear(h.SendCounts)
	next := int32(0)
	for e, n := range s.chosen {
		h.SendCounts[s.layout.Owner(e)] += int(n)
		s.next[e] = next
		next += n
	}
	h.Sent = int(next)
	h.packed = resize(h.packed, len(topk))
	for i, e := range topk {
		if e < 0 {
			h.packed[i] = -1
			continue
		}
		h.packed[i] = s.next[e]
		s.next[e]++
	}
}

// placeReceived computes the groups of this rank's experts from what every rank sends them.
func (s *Standard) placeReceived(h *Handle) {
	experts := s.layout.PerRank
	h.RecvCounts = resize(h.RecvCounts, s.layout.Ranks)
	h.GroupEnds = resize(h.GroupEnds, experts)
	clear(h.RecvCounts)
	clear(h.GroupEnds)
	for i, n := range h.blockRows {
		h.RecvCounts[i/experts] += int(n)
		h.GroupEnds[i%experts] += n
	}
	end := int32(0)
	for e, n := range h.GroupEnds {
		end += n
		h.GroupEnds[e] = end
	}
	h.Received = int(end)
}
