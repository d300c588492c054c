package collective

// Communication between hosts: ranks of one host share memory, ranks of different hosts exchange
// messages.

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Network carries messages between ranks of different hosts. Messages with the same two ranks and
// tag arrive in the order in which they were started. It is safe for concurrent use.
type Network interface {
	// Start starts a transfer. The network calls [Transfer.End] when it ends, including after a
	// failure.
	Start(t *Transfer)

	// Progress advances transfers. A rank that waits for a transfer calls it repeatedly. Otherwise
	// the network advances on its own.
	Progress()
}

// collector is a Network with its own all-to-all-v for all ranks of a world. Counts and
// displacements are in bytes. The call returns when it is complete, whatever happens to other
// ranks.
type collector interface {
	AllToAllV(dst []byte, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int) error
}

// Transfer is one end of a message between two ranks of a world.
type Transfer struct {
	Rank, Peer int  // the rank of this end, and that of the other end
	Tag        int  // separates the messages of communicators
	Receives   bool // this end receives
	// the message, or the memory for it; it must not change until the end
	Data []byte

	world *World
	n     int
	err   error
	done  atomic.Bool
}

// End ends a transfer that has moved n bytes. The network calls it once.
func (t *Transfer) End(n int, err error) {
	if err == nil && n > len(t.Data) {
		err = fmt.Errorf("it has %d bytes, but there is room for %d", n, len(t.Data))
	}
	t.n, t.err = n, err
	h, rank := t.world.heap, t.Rank
	t.done.Store(true) // the owner may reuse it
	h.Ring(rank)
}

// Sent returns the number of bytes that this rank has sent to ranks of other hosts, on all its
// communicators.
func (c *Comm) Sent() int64 { return c.group.world.sent[c.group.worldRanks[c.rank]].Load() }

// countSent counts bytes that this rank sends to other hosts.
func (c *Comm) countSent(bytes int) {
	c.group.world.sent[c.group.worldRanks[c.rank]].Add(int64(bytes) * max(c.repeat, 1))
}

// Messages is a set of transfers that one rank waits for together. It is reused, by the goroutine
// of the communicator that created it.
type Messages struct {
	comm *Comm
	kind Kind // the kind of call that waiting time counts for
	tag  int
	all  []*Transfer
	n    int // in use, of all
	wait transfersEnd
}

// NewMessages returns an empty set of messages between ranks of the communicator. Waiting for them
// counts as waiting in calls of the given kind.
func (c *Comm) NewMessages(kind Kind) *Messages {
	return &Messages{comm: c, kind: kind, tag: c.group.id}
}

// Send starts to send b to a rank of another host. It sends nothing if b is empty, which the
// receiver expects.
func (m *Messages) Send(to int, b []byte) { m.start(to, b, false) }

// Recv starts to receive len(b) bytes from a rank of another host.
func (m *Messages) Recv(from int, b []byte) { m.start(from, b, true) }

func (m *Messages) start(peer int, b []byte, receives bool) {
	if len(b) == 0 {
		return
	}
	if !receives {
		m.comm.countSent(len(b))
	}
	if m.comm.group.dry {
		return
	}
	if m.n == len(m.all) {
		m.all = append(m.all, new(Transfer))
	}
	t, g := m.all[m.n], m.comm.group
	m.n++
	t.Rank, t.Peer, t.Tag, t.Receives, t.Data = g.worldRanks[m.comm.rank], g.worldRanks[peer], m.tag, receives, b
	t.world, t.n, t.err = g.world, 0, nil
	t.done.Store(false)
	g.world.network.Start(t)
}

// Len returns the number of messages that were started since Wait.
func (m *Messages) Len() int { return m.n }

// Wait returns when all messages are complete, and clears the set. It fails if a rank fails.
func (m *Messages) Wait() error {
	err := m.WaitFirst(m.n)
	for _, t := range m.all[:m.n] {
		t.Data = nil
	}
	m.n = 0
	return err
}

// WaitFirst waits for the first n messages that were started.
func (m *Messages) WaitFirst(n int) error {
	c := m.comm
	if c.group.dry {
		return nil
	}
	w, own := c.group.world, c.group.worldRanks[c.rank]
	m.wait = transfersEnd{m, time.Now(), n, 0}
	c.beginWait(m.kind, m.wait.start)
	c.await(&m.wait)
	c.countWait(time.Now())
	for _, t := range m.all[:n] {
		if err := t.failure(); t.done.Load() && err != nil {
			w.abort(t.Peer, own, err)
		}
	}
	if f := w.failed(); f != nil {
		return c.aborted(f, c.slot(c.rank))
	}
	return nil
}

// transfersEnd is the condition that the first n messages are complete, or that a rank has failed.
type transfersEnd struct {
	*Messages
	start time.Time // of the wait
	n     int
	ended int // of the first n, those that are known to be complete
}

func (e *transfersEnd) met() bool {
	c := e.comm
	w, own := c.group.world, c.group.worldRanks[c.rank]
	for e.ended < e.n && e.all[e.ended].done.Load() {
		e.ended++
	}
	if e.ended == e.n || w.heap.Failed() {
		return true
	}
	w.network.Progress()
	if late := time.Since(e.start); w.limits.Wait > 0 && late >= w.limits.Wait {
		peer := e.all[e.ended].Peer
		w.abort(peer, own, fmt.Errorf("nothing has come from %s within %v", w.describeHost(peer), w.limits.Wait))
	}
	return false
}

// failure returns the error of a transfer that has ended.
func (t *Transfer) failure() error {
	switch {
	case t.err != nil && t.Receives:
		return fmt.Errorf("receiving from %s: %w", t.world.describeHost(t.Peer), t.err)
	case t.err != nil:
		return fmt.Errorf("sending to %s: %w", t.world.describeHost(t.Peer), t.err)
	}
	return nil
}
