package collective

// Checks of what other ranks have published, because a faulty process may have written anything.
// Impossible numbers are errors on every rank, and no rank follows them out of their writer's
// memory.

import (
	"errors"
	"fmt"
	"unsafe"
)

// peer is what the current call may use of a rank. It is a copy, because the owner may change its
// memory at any time.
type peer struct {
	bufs [2][]byte
	from int // in an all-to-all-v, the element of the first buffer at which this rank's part begins
}

// broken returns the error that all ranks return for invalid published data.
func (g *group) broken(seq, rank int, err error) error {
	return &ArgumentError{Comm: g.name, Rank: rank, Call: fmt.Sprintf("%v #%d", g.board.slot(rank, seq).kind, seq), Err: fmt.Errorf("its call is damaged: %w", err)}
}

// sound returns an error if a call, number seq of the communicator, is impossible.
func (s *slot) sound(seq, ranks int) error {
	switch {
	case s.seq != int64(seq):
		return fmt.Errorf("it has number %d", s.seq)
	case s.kind >= numKinds:
		return errors.New("there is no such collective")
	case s.errLen < 0 || int(s.errLen) > len(s.err):
		return fmt.Errorf("its message has %d bytes", s.errLen)
	case s.errLen > 0:
		return nil // no other field is used
	case s.payloadLen < 0 || s.payloadLen > payloadBytes:
		return fmt.Errorf("%d bytes travel with it, but there is room for %d", s.payloadLen, payloadBytes)
	}
	if lists := traitsOf[s.kind].lists; lists > 0 && int(s.payloadLen) != 8*ranks*lists {
		return fmt.Errorf("its %d lists for %d ranks have %d bytes", lists, ranks, s.payloadLen)
	}
	return nil
}

// findBuffers finds the buffers of all ranks of this host, and checks that they are large enough
// for the call.
func (c *Comm) findBuffers(k call) error {
	if !traitsOf[k.kind].buffers {
		return nil
	}
	for j := range c.peers {
		s := c.slot(j)
		if k.data != nil && int(s.payloadLen) != len(k.data) {
			return c.group.broken(c.seq, j, fmt.Errorf("%d bytes travel with it, not %d", s.payloadLen, len(k.data)))
		}
		if !c.isLocal(j) {
			continue
		}
		bufs := s.head.bufs
		if j == c.rank {
			bufs = k.bufs // what peers might have written over
		}
		err := c.find(j, bufs, k.size)
		if err == nil {
			err = c.checkLength(j, k)
		}
		if err != nil {
			return c.group.broken(c.seq, j, err)
		}
	}
	return nil
}

// find sets the buffers of rank j from what it has published.
func (c *Comm) find(j int, published [2]extent, elem int) error {
	g := c.group
	for i, e := range published {
		switch {
		case e.bytes == 0:
			c.peers[j].bufs[i] = nil
		case g.local != nil: // this process has written it
			c.peers[j].bufs[i] = unsafe.Slice((*byte)(g.local.bufs[c.seq%2][j][i]), e.bytes)
		case j == c.rank: // its own buffer may be memory that another rank of this host has opened to it
			c.peers[j].bufs[i] = unsafe.Slice((*byte)(g.world.heap.At(e.offset)), e.bytes)
		default:
			p, ok := g.world.heap.Within(g.worldRanks[j], e.offset, e.bytes)
			if !ok || e.offset%int64(max(elem, 1)) != 0 {
				return fmt.Errorf("its buffer of %d bytes is at %d of the heap, outside of its rank's memory", e.bytes, e.offset)
			}
			c.peers[j].bufs[i] = unsafe.Slice((*byte)(p), e.bytes)
		}
	}
	return nil
}

// checkLength checks that rank j's first buffer has the elements that this rank is about to use.
// Calls that agree have the same counts.
func (c *Comm) checkLength(j int, k call) error {
	if k.size == 0 || k.data != nil {
		return nil
	}
	there, need := len(c.peers[j].bufs[0])/k.size, int(k.count)
	if needs := traitsOf[k.kind].needs; needs != nil {
		var err error
		if need, err = needs(c, j, k); err != nil {
			return err
		}
	}
	if need > there {
		return fmt.Errorf("its buffer has %d elements, not the %d that the call is about", there, need)
	}
	return nil
}
