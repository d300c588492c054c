package collective

// A communicator without other ranks, which counts what a rank would move.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"spmoe/collective/heap"
)

// NewDry returns one rank's end of a communicator whose other ranks do not exist. hosts lists the
// ranks of each host, as [Comm.Hosts] does. There may be more than [MaxRanks].
//
// Its calls check their arguments, count in Stats and Sent what a real rank counts, and return at
// once. They move nothing and access no byte of their buffers. In a window, the buffers of every
// rank are those of this rank. Split and OpenMailboxes return an error. Sent counts the bytes of
// this communicator alone, and none of calls that fail.
func NewDry(hosts [][]int, rank int) *Comm {
	n := 0
	for _, ranks := range hosts {
		n += len(ranks)
	}
	g := &group{name: "dry", worldRanks: make([]int, n), hosts: hosts, hostOf: make([]int, n), localRank: make([]int, n), dry: true}
	for h, ranks := range hosts {
		for i, r := range ranks {
			g.worldRanks[r], g.hostOf[r], g.localRank[r] = r, h, i
		}
	}
	g.here = g.hostOf[rank]
	g.cut(0, n)
	g.world = &World{heap: heap.New(heap.Part{First: rank, Ranks: 1, World: n}, 0), placement: g.placement(), sent: make([]atomic.Int64, n)}
	c := &Comm{group: g, rank: rank, peers: make([]peer, n)}
	c.moved = c.NewMessages(KindBarrier)
	return c
}

// placement describes the hosts of a group whose ranks are consecutive on each.
func (g *group) placement() *Placement {
	p := &Placement{Ranks: len(g.hostOf)}
	for h, ranks := range g.hosts {
		p.Names = append(p.Names, fmt.Sprintf("host %d", h))
		p.First = append(p.First, ranks[0])
	}
	return p
}

var errDry = errors.New("collective: the other ranks of this communicator do not exist: create its parts with NewDry")

// enterDry is enter without other ranks.
func (c *Comm) enterDry(k call) error {
	c.seq++
	if k.err != nil {
		return &ArgumentError{Comm: c.group.name, Rank: c.rank, Call: fmt.Sprintf("%v #%d", k.kind, c.seq), Err: k.err}
	}
	c.countSent(c.toldBytes(k.payload()))
	switch k.kind {
	case KindDispatch, KindCombine, KindBuffers:
		var own peer
		for i := range own.bufs {
			own.bufs[i] = unsafe.Slice((*byte)(k.ptr[i]), k.bufs[i].bytes)
		}
		for j := range c.peers {
			c.peers[j] = own
		}
	}
	return nil
}

// CountSent adds bytes to Sent, for messages of a rank after [NewDry] that are not made.
func (c *Comm) CountSent(bytes int) { c.countSent(bytes) }

// countDry ends a call without other ranks. bytes are for Stats. sent are the bytes to other hosts
// after enter.
func (c *Comm) countDry(kind Kind, bytes, sent int) error {
	c.countSent(sent)
	c.retire(kind, bytes)
	return nil
}

// Repeat makes a communicator of [NewDry] count the following calls n times each.
func (c *Comm) Repeat(n int) { c.repeat = int64(n) }
