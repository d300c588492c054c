package collective

// A collective has three parts: enter (all have published their calls, and each rank checks that
// they match), the ranks' work on each other's memory, and sync (all ranks of this host have
// finished; messages tell about other hosts). A meeting is decided once for all ranks: either all
// have arrived or, if a rank failed before it arrived, the meeting is aborted. A failure releases
// goroutine ranks from enter only. After it an early return would free memory that a peer still
// reads: they are released from sync once all ranks that have not arrived have ended. A process may
// die anywhere, and its memory in the heap survives it.

import (
	"errors"
	"time"
	"unsafe"

	"spmoe/collective/heap"
	"spmoe/internal/fault"
)

type group struct {
	world *World
	name  string
	// the same on all hosts; no two communicators of a rank have the same id
	id         int
	worldRanks []int       // by rank of this group
	hosts      [][]int     // ranks of this group by host
	subtrees   []subtree   // of the tree of sums over ranks, in the order of their ranks
	subtreesOf [][]subtree // those of each host
	hostOf     []int       // by rank of this group
	localRank  []int       // rank among the ranks of its host, by rank of this group
	here       int         // the host of this process
	board      board
	local      *local // nil if ranks are processes
	dry        bool   // the other ranks do not exist, and there is no board: see NewDry
}

// local holds what goroutine ranks share through Go pointers, by rank. Slots hold the rest.
type local struct {
	bufs     [2][][2]unsafe.Pointer // by the parity of seq, like slots
	children []*group
}

func newGroup(w *World, name string, id int, worldRanks []int, memory unsafe.Pointer) *group {
	n := len(worldRanks)
	g := &group{world: w, name: name, id: id, worldRanks: worldRanks, board: board{memory, n}}
	g.divide()
	if !w.heap.Shared() {
		g.local = &local{bufs: [2][][2]unsafe.Pointer{make([][2]unsafe.Pointer, n), make([][2]unsafe.Pointer, n)}, children: make([]*group, n)}
	}
	return g
}

// meet waits until every rank of this host has arrived at this rank's next meeting. If the meeting
// is abortable, a failure ends the wait. Otherwise it ends if all ranks that are missing have
// ended.
func (c *Comm) meet(kind Kind, abortable bool) error {
	if c.group.dry {
		return nil
	}
	c.round++
	c.Progress().Add(1)
	fault.Point(fault.BeforeMeeting)
	g, b := c.group, c.group.board
	start := time.Now()
	a := b.arrival(c.rank)
	a.round.Store(c.round)
	fault.Point(fault.InMeeting)
	if g.complete(c.round) && g.decide(c.round, false) {
		g.ring(c.rank)
	}
	c.beginWait(kind, start)
	c.meeting = meeting{c, start, abortable}
	c.await(&c.meeting)
	c.countWait(time.Now())
	fault.Point(fault.AfterMeeting)
	if b.decision().Load() != c.round<<1|1 {
		return nil
	}
	f := g.failed(c.round)
	if f == nil {
		f = &failure{g.worldRanks[c.rank], errGone}
	}
	return c.aborted(f, c.slot(c.rank))
}

// meeting is the condition that a meeting is decided.
type meeting struct {
	c         *Comm
	start     time.Time // of the wait
	abortable bool
}

// met reports whether the meeting is decided. A rank that sees a failure aborts it.
func (m *meeting) met() bool {
	c, g := m.c, m.c.group
	decision := g.board.decision()
	if decision.Load()>>1 >= c.round {
		return true
	}
	c.overdue(m.start)
	if m.abortable && g.failed(c.round) != nil || !m.abortable && g.abandoned(c.round) {
		if g.decide(c.round, true) {
			g.ring(c.rank)
		}
	}
	return decision.Load()>>1 >= c.round
}

// complete reports whether every rank of this host has arrived at a meeting. The last one to arrive
// sees that it is complete.
func (g *group) complete(round uint64) bool {
	for _, r := range g.locals() {
		if g.board.arrival(r).round.Load() < round {
			return false
		}
	}
	return true
}

// decide settles a meeting, and reports whether this rank settled it.
func (g *group) decide(round uint64, abort bool) bool {
	d := g.board.decision()
	next := round << 1
	if abort {
		next |= 1
	}
	for {
		now := d.Load()
		if now>>1 >= round {
			return false
		}
		if d.CompareAndSwap(now, next) {
			return true
		}
	}
}

// ring wakes the other ranks of this host.
func (g *group) ring(but int) {
	for _, r := range g.locals() {
		if r != but {
			g.world.heap.Ring(g.worldRanks[r])
		}
	}
}

// errLeft is the failure of a rank that has finished while others wait for it.
var errLeft = errors.New("it has finished without making this call")

// errGone is the failure of a meeting that was aborted because a rank had left, which has come back
// since.
var errGone = errors.New("a rank of the communicator had finished")

// failed returns the reason why a meeting cannot take place, or nil.
func (g *group) failed(round uint64) *failure {
	if f := g.world.failed(); f != nil {
		return f
	}
	for _, r := range g.locals() {
		if world := g.worldRanks[r]; g.world.heap.StateOf(world) == heap.Finished && g.board.arrival(r).round.Load() < round {
			return &failure{world, errLeft}
		}
	}
	return nil
}

// abandoned reports whether ranks are missing at a meeting, and all of these have ended.
func (g *group) abandoned(round uint64) (gone bool) {
	for _, r := range g.locals() {
		ended := g.world.heap.StateOf(g.worldRanks[r]) == heap.Finished
		if g.board.arrival(r).round.Load() >= round {
			continue
		}
		if !ended {
			return false
		}
		gone = true
	}
	return gone
}

// aborted returns the error of a call that a failure has aborted.
func (c *Comm) aborted(f *failure, s *slot) error {
	g := c.group
	return &AbortError{Rank: f.rank, Err: f.err, Comm: g.name, Waiting: s.describe(c.Size()), Step: g.world.heap.StepOf(g.worldRanks[c.rank])}
}
