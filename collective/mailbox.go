package collective

// Messages from rank to rank. On one host they are one-sided: the sender writes into the receiver's
// memory, and the receiver uses the message where it is.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"spmoe/collective/heap"
)

// Mailboxes let the ranks of a communicator send each other messages. Every rank has boxes of one
// size. The ranks agree which rank sends into each box. A message stays in its box until the
// receiver frees it. A sender waits until the box is empty, and for nothing else.
type Mailboxes struct {
	c      *Comm
	boxes  int
	bytes  int      // of the longest message
	room   int      // for a message
	memory [][]byte // of the ranks of this host: the states of their boxes, and then the messages
	remote remoteBoxes
}

// stateBytes is the size of the state of a box, in a cache line of its own. The state is 0 if the
// box is empty, or the length of the message plus 1.
const stateBytes = lineBytes

// OpenMailboxes makes boxes for messages of up to the given number of bytes on each rank. It is
// collective, and all ranks pass the same numbers.
func (c *Comm) OpenMailboxes(boxes, bytes int) (*Mailboxes, error) {
	m := &Mailboxes{c: c, boxes: boxes, bytes: (bytes + lineBytes - 1) / lineBytes * lineBytes, memory: make([][]byte, c.Size())}
	m.room = m.bytes
	here := c
	if c.group.dry {
		return nil, errDry
	}
	if c.group.spansHosts() {
		m.room += lineBytes
		var err error
		if m.remote, err = c.newRemoteBoxes(boxes); err != nil {
			return nil, err
		}
		if here, err = c.Split(c.Host(), c.Rank()); err != nil {
			return nil, err
		}
	}
	return m, m.share(here)
}

// share allocates this rank's boxes and lets the ranks of the host reach them.
func (m *Mailboxes) share(here *Comm) error {
	own := m.c.Allocator().Allocate(m.boxes * (stateBytes + m.room))
	clear(own[:m.boxes*stateBytes])
	window, err := here.OpenBuffers([][]byte{own})
	if err != nil {
		return err
	}
	for i, r := range m.c.group.locals() {
		list, failed := window.Of(i)
		if failed == nil && (len(list) != 1 || len(list[0]) != len(own)) {
			failed = here.group.broken(here.seq, i, fmt.Errorf("it has other mailboxes than %d of %d bytes", m.boxes, m.bytes))
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		m.memory[r] = list[0]
	}
	return errors.Join(err, window.Close(0))
}

// Bytes returns the length of the longest message.
func (m *Mailboxes) Bytes() int { return m.bytes }

// Send copies a message into a box of another rank, or of this one.
func (m *Mailboxes) Send(to, box int, message []byte) error {
	if err := m.check(to, box); err != nil {
		return err
	}
	if len(message) > m.bytes {
		return fmt.Errorf("collective: a message of %d bytes for a box of %d", len(message), m.bytes)
	}
	if !m.c.isLocal(to) {
		if err := m.sendRemote(to, box, message); err != nil {
			return err
		}
	} else {
		state := m.state(to, box)
		if err := m.await(to, func() bool { return state.Load() == 0 }); err != nil {
			return err
		}
		copy(m.place(to, box), message)
		state.Store(uint64(len(message)) + 1)
		m.ring(to)
	}
	m.c.stats[KindMessage].Calls++
	m.c.stats[KindMessage].Bytes += int64(len(message))
	return nil
}

// Recv waits for the message in a box of this rank. from is its sender. The message stays in place
// until Free.
func (m *Mailboxes) Recv(from, box int) ([]byte, error) {
	if err := m.check(from, box); err != nil {
		return nil, err
	}
	if !m.c.isLocal(from) {
		return m.recvRemote(from, box)
	}
	own := m.c.rank
	state := m.state(own, box)
	if err := m.await(from, func() bool { return state.Load() != 0 }); err != nil {
		return nil, err
	}
	n := state.Load() - 1
	if n > uint64(m.bytes) {
		return nil, m.c.group.broken(m.c.seq, from, fmt.Errorf("it has sent a message of %d bytes into a box of %d", n, m.bytes))
	}
	return m.place(own, box)[:n], nil
}

// Free empties a box of this rank, from which it has received a message of that sender.
func (m *Mailboxes) Free(from, box int) error {
	if err := m.check(from, box); err != nil {
		return err
	}
	if !m.c.isLocal(from) {
		return m.remote.received[box].Wait()
	}
	m.state(m.c.rank, box).Store(0)
	m.ring(from)
	return nil
}

func (m *Mailboxes) check(rank, box int) error {
	if rank < 0 || rank >= m.c.Size() || box < 0 || box >= m.boxes {
		return fmt.Errorf("collective: box %d of rank %d: there are %d ranks with %d boxes each", box, rank, m.c.Size(), m.boxes)
	}
	return nil
}

func (m *Mailboxes) state(rank, box int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.memory[rank][box*stateBytes]))
}

func (m *Mailboxes) place(rank, box int) []byte {
	return m.memory[rank][m.boxes*stateBytes+box*m.room:][:m.room:m.room]
}

// ring wakes a rank that may wait for a box.
func (m *Mailboxes) ring(rank int) {
	if rank != m.c.rank {
		m.c.group.world.heap.Ring(m.c.group.worldRanks[rank])
	}
}

// await waits for another rank. It fails if a rank of the world fails, if that rank has finished,
// or if it takes longer than the limit.
func (m *Mailboxes) await(rank int, ready func() bool) error {
	if ready() {
		return nil
	}
	c := m.c
	g, w := c.group, boxReady{m: m, rank: rank, start: time.Now(), ready: ready}
	c.Progress().Add(1)
	c.beginWait(KindMessage, w.start)
	c.await(&w)
	c.countWait(time.Now())
	if w.failure == nil || ready() {
		return nil
	}
	return &AbortError{Rank: w.failure.rank, Err: w.failure.err, Comm: g.name, Waiting: fmt.Sprintf("a message between ranks %d and %d", c.rank, rank), Step: g.world.heap.StepOf(g.worldRanks[c.rank])}
}

// boxReady is the condition that a box has the awaited state, or that a rank fails.
type boxReady struct {
	m       *Mailboxes
	rank    int       // the other one
	start   time.Time // of the wait
	ready   func() bool
	failure *failure
}

func (b *boxReady) met() bool {
	if b.ready() {
		return true
	}
	b.failure = b.m.failed(b.rank, b.start)
	return b.failure != nil
}

// failed returns why a rank will not come, or nil.
func (m *Mailboxes) failed(rank int, start time.Time) *failure {
	g, w := m.c.group, m.c.group.world
	if f := w.failed(); f != nil {
		return f
	}
	there := g.worldRanks[rank]
	if w.heap.StateOf(there) == heap.Finished {
		return &failure{there, errLeft}
	}
	if limit := w.limits.Wait; limit > 0 && time.Since(start) >= limit {
		err := fmt.Errorf("rank %d has not heard from it within %v", g.worldRanks[m.c.rank], limit)
		w.abort(there, g.worldRanks[m.c.rank], err)
		return &failure{there, err}
	}
	return nil
}
