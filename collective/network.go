package collective

// Between hosts: ranks of one host share memory, ranks of different hosts send each other messages.

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Network carries messages between ranks of different hosts. Messages of the same two ranks and tag
// arrive in the order in which they were begun. Any goroutine may call it.
type Network interface {
	// Start begins a transfer, which ends by [Transfer.End], also where it cannot be carried out.
	Start(t *Transfer)

	// Progress moves transfers on. Who waits for one calls it again and again; while nobody does,
	// the network moves on by itself.
	Progress()
}

// collector is a Network that has an all-to-all-v of its own, for all ranks of a world. Counts and
// displacements are in bytes. It returns when all is done, whatever happens to other ranks.
type collector interface {
	AllToAllV(dst []byte, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int) error
}

// Transfer is one end of a message between two ranks of a world.
type Transfer struct {
	Rank, Peer int    // this end's rank, and the other's
	Tag        int    // tells the messages of communicators apart
	Receives   bool   // this end is where the message goes
	Data       []byte // the message, or room for it, which stays as it is until the end

	world *World
	n     int
	err   error
	done  atomic.Bool
}

// End says that a transfer has ended, n bytes having been moved. The network calls it once.
func (t *Transfer) End(n int, err error) {
	if err == nil && n > len(t.Data) {
		err = fmt.Errorf("it has %d bytes, where there is room for %d", n, len(t.Data))
	}
	t.n, t.err = n, err
	h, rank := t.world.heap, t.Rank
	t.done.Store(true) // and the owner may use it again
	h.Ring(rank)
}

// Sent is how many bytes this rank has sent to ranks of other hosts, on all its communicators.
func (c *Comm) Sent() int64 { return c.group.world.sent[c.group.worldRanks[c.rank]].Load() }

// Messages are the transfers of one rank that it waits for together. They are used again and again,
// by the goroutine of the communicator that has made them.
type Messages struct {
	comm *Comm
	kind Kind // to which time spent waiting counts
	all  []*Transfer
	n    int // of all, in use
}

// NewMessages returns no messages yet between ranks of the communicator. Waiting for them counts as
// waiting in calls of a kind.
func (c *Comm) NewMessages(kind Kind) *Messages { return &Messages{comm: c, kind: kind} }

// Send begins to send b to a rank of another host. Nothing is sent if b is empty: the other end
// knows.
func (m *Messages) Send(to int, b []byte) { m.start(to, b, false) }

// Recv begins to receive len(b) bytes from a rank of another host.
func (m *Messages) Recv(from int, b []byte) { m.start(from, b, true) }

func (m *Messages) start(peer int, b []byte, receives bool) {
	if len(b) == 0 {
		return
	}
	if m.n == len(m.all) {
		m.all = append(m.all, new(Transfer))
	}
	t, g := m.all[m.n], m.comm.group
	m.n++
	t.Rank, t.Peer, t.Tag, t.Receives, t.Data = g.worldRanks[m.comm.rank], g.worldRanks[peer], g.id, receives, b
	t.world, t.n, t.err = g.world, 0, nil
	t.done.Store(false)
	if !receives {
		m.comm.group.world.sent[t.Rank].Add(int64(len(b)))
	}
	g.world.network.Start(t)
}

// Len is the number of messages that were begun since Wait.
func (m *Messages) Len() int { return m.n }

// Wait returns when all messages have come and gone, and forgets them. It fails if a rank does.
func (m *Messages) Wait() error {
	err := m.WaitFirst(m.n)
	for _, t := range m.all[:m.n] {
		t.Data = nil
	}
	m.n = 0
	return err
}

// WaitFirst waits for the first n messages that were begun.
func (m *Messages) WaitFirst(n int) error {
	c, waiting := m.comm, 0
	w, own := c.group.world, c.group.worldRanks[c.rank]
	start := time.Now()
	c.awaits(m.kind, start)
	w.heap.Await(own, c.idler(), func() bool {
		for waiting < n && m.all[waiting].done.Load() {
			waiting++
		}
		if waiting == n || w.heap.Failed() {
			return true
		}
		w.network.Progress()
		if late := time.Since(start); w.limits.Wait > 0 && late >= w.limits.Wait {
			w.abort(m.all[waiting].Peer, own, fmt.Errorf("nothing has come from %s within %v", w.describeHost(m.all[waiting].Peer), w.limits.Wait))
		}
		return false
	})
	if n > 0 {
		c.waitedFor(m.all[n-1].Peer)
	}
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

// failure says what is wrong with a transfer that has ended.
func (t *Transfer) failure() error {
	switch {
	case t.err != nil && t.Receives:
		return fmt.Errorf("receiving from %s: %w", t.world.describeHost(t.Peer), t.err)
	case t.err != nil:
		return fmt.Errorf("sending to %s: %w", t.world.describeHost(t.Peer), t.err)
	}
	return nil
}
