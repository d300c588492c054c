// Package collective is an MPI-style communicator. Ranks meet in collectives, exchange typed slices
// by copying memory, and get errors instead of deadlocks when another rank makes a mistake or
// fails.
//
// Every rank of a communicator calls the same collectives in the same order, as in MPI. This is
// checked: ranks that meet in different calls, or in the same call with arguments that do not
// match, all get a [MismatchError].
package collective

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"spmoe/collective/heap"
	"spmoe/internal/fault"
)

// World is a set of ranks. All of them are goroutines of this process, or this process is one of
// them, on one host or on several.
//
// Its communicators, including those from [Comm.Split], live as long as it does.
type World struct {
	heap      *heap.Heap // of this host
	placement *Placement
	network   Network // to the other hosts; nil if there are none
	comms     []*Comm // by rank; nil if the rank is another process
	limits    Limits
	contains  bool // panics of ranks
	failure   atomic.Pointer[failure]
	sent      []atomic.Int64 // bytes sent to other hosts, by rank
	nextGroup atomic.Int64   // lower bound of the id of the next communicator
}

// failure is the first Abort of a world.
type failure struct {
	rank int
	err  error
}

// MaxRanks is the maximum number of ranks of a world, because what a call says about all ranks must
// fit in its slot.
const MaxRanks = 256

// ControlBytes returns the size of the control memory that a heap needs for a world of n ranks.
func ControlBytes(n int) int { return boardBytes(n) }

// NewWorld returns a world of n ranks, goroutines of this process. It panics unless n is from 1 to
// MaxRanks.
func NewWorld(n int) *World {
	if n < 1 || n > MaxRanks {
		panic(fmt.Sprintf("collective: a world of %d ranks: 1 to %d are possible", n, MaxRanks))
	}
	return newWorld(&Placement{Names: []string{"localhost"}, First: []int{0}, Ranks: n}, 0)
}

// newWorld creates the ranks of one host, as goroutines.
func newWorld(p *Placement, host int) *World {
	part := p.Part(host)
	w := &World{heap: heap.New(part, ControlBytes(p.Ranks)), placement: p, contains: true, comms: make([]*Comm, p.Ranks), sent: make([]atomic.Int64, p.Ranks)}
	g := w.worldGroup()
	for r := part.First; r < part.First+part.Ranks; r++ {
		w.comms[r] = newComm(g, r)
	}
	return w
}

// Join makes this process one rank of the world whose ranks share h, a heap with [ControlBytes] of
// control memory.
func Join(h *heap.Heap, rank int) (*World, error) {
	return JoinHosts(h, rank, &Placement{Names: []string{"localhost"}, First: []int{0}, Ranks: h.Ranks()}, nil)
}

// JoinHosts is Join for a world of several hosts, whose ranks on this host share h and reach the
// others over the network.
func JoinHosts(h *heap.Heap, rank int, p *Placement, net Network) (*World, error) {
	part := h.Part()
	if rank < part.First || rank >= part.First+part.Ranks || part.World != p.Ranks || len(h.Control()) < ControlBytes(p.Ranks) {
		return nil, fmt.Errorf("collective: rank %d cannot join %d ranks with %d bytes of control memory", rank, p.Ranks, len(h.Control()))
	}
	w := &World{heap: h, placement: p, network: net, comms: make([]*Comm, p.Ranks), sent: make([]atomic.Int64, p.Ranks)}
	w.comms[rank] = newComm(w.worldGroup(), rank)
	return w, nil
}

func (w *World) worldGroup() *group {
	ranks := make([]int, w.placement.Ranks)
	for r := range ranks {
		ranks[r] = r
	}
	w.nextGroup.Store(worldTag + 1)
	return newGroup(w, "world", worldTag, ranks, unsafe.Pointer(unsafe.SliceData(w.heap.Control())))
}

// Comm returns the world communicator as seen by one rank. Only that rank's goroutine may use it.
func (w *World) Comm(rank int) *Comm { return w.comms[rank] }

// Abort declares that a rank failed with err, which must not be nil. Every rank that waits now or
// calls a collective later, on any communicator of the world, gets an [AbortError]. The first Abort
// wins.
//
// Goroutine ranks still complete a collective that all of them have entered, so that no rank
// returns while a peer reads its memory.
func (w *World) Abort(rank int, err error) { w.abort(rank, rank, err) }

// abort is Abort, declared by a rank that may be another one.
func (w *World) abort(rank, by int, err error) {
	if err == nil {
		panic("collective: Abort without an error")
	}
	w.failure.CompareAndSwap(nil, &failure{rank, err})
	f := w.failure.Load()
	w.heap.Fail(f.rank, by, f.err.Error())
}

// failed returns the failure of the world, or nil.
func (w *World) failed() *failure {
	if !w.heap.Failed() {
		return w.failure.Load()
	}
	declared, _ := w.heap.Failure()
	if f := w.failure.Load(); f != nil && f.rank == declared.Rank {
		return f
	}
	return &failure{declared.Rank, errors.New(declared.Text)}
}

// Run calls f once for every rank of this process, each in its own goroutine, and waits for all. A
// rank whose f returns an error aborts the world. So does a rank that waits for a rank whose f has
// returned. Run returns a [RankError] of the rank that failed first, on any host. With a limit, it
// does so even if a goroutine computes on: then the caller should end the process.
func (w *World) Run(f func(c *Comm) error) error {
	w.setState(heap.Running)
	stop := w.startPulse()
	running, ended := map[int]bool{}, make(chan int, len(w.comms))
	for rank, c := range w.comms { // the rank's own number may have changed in memory
		if c != nil {
			running[rank] = true
			go w.runRank(rank, f, ended)
		}
	}
	late := w.awaitRanks(running, ended)
	stop()
	if late != nil {
		return late
	}
	if !w.heap.Shared() && w.failed() == nil {
		w.setState(heap.Absent)
	}
	if fail := w.failed(); fail != nil {
		return &RankError{fail.rank, fail.err}
	}
	return nil
}

// ContainPanics makes the panic of a rank an error of it, which ends the world, as it always is if
// ranks are goroutines. Otherwise it ends the process, which can be replaced.
func (w *World) ContainPanics() { w.contains = true }

// contain makes a panic outside of ranks a failure: the heap's own numbers have changed in memory.
func (w *World) contain() {
	if cause := recover(); cause != nil {
		w.failure.CompareAndSwap(nil, &failure{0, fmt.Errorf("panic: %v", cause)})
	}
}

// errVanished is the failure of a rank whose goroutine has called [runtime.Goexit].
var errVanished = errors.New("its goroutine has ended without a result")

// runRank runs f as one rank, and declares how it has ended. It contains accesses to memory that
// does not exist like panics: an address may have changed in memory.
func (w *World) runRank(rank int, f func(c *Comm) error, ended chan<- int) {
	defer func() { ended <- rank }()
	err := errVanished
	if w.contains {
		debug.SetPanicOnFault(true)
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
			w.leave(rank, err)
		}()
	}
	if err = f(w.comms[rank]); !w.contains {
		w.leave(rank, err)
	}
}

// leave declares that a rank has ended, with err unless it is nil.
func (w *World) leave(rank int, err error) {
	defer func() { recover() }() // of the heap, if its own numbers have changed in memory
	if err != nil {
		w.Abort(rank, err)
	}
	fault.Point(fault.BeforeLeave)
	w.heap.SetState(rank, heap.Finished)
}

func (w *World) setState(s heap.State) {
	defer w.contain()
	for r, c := range w.comms {
		if c != nil {
			w.heap.SetState(r, s)
		}
	}
}
