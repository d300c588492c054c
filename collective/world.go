// Package collective is an MPI-style communicator: ranks meet in collectives, exchange typed slices
// by memory copy, and learn of each other's mistakes and failures as errors instead of deadlocks.
//
// Every rank of a communicator calls the same collectives in the same order, as in MPI. Here this
// is checked: ranks that meet in different calls, or in the same call with arguments that do not
// fit together, all get a [MismatchError].
package collective

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"spmoe/collective/heap"
	"spmoe/internal/fault"
)

// World is a set of ranks: goroutines of this process, all of them, or processes, of which this is
// one, on one host or several.
//
// Its communicators, [Comm.Split] ones included, live as long as it does.
type World struct {
	heap      *heap.Heap // of this host
	placement *Placement
	network   Network // to the other hosts; nil if there are none
	comms     []*Comm // by rank; nil if the rank is another process
	limits    Limits
	failure   atomic.Pointer[failure]
	sent      []atomic.Int64 // bytes to other hosts, by rank
	nextGroup atomic.Int64   // the id of the next communicator is this one or a higher
}

// failure is the first Abort of a world.
type failure struct {
	rank int
	err  error
}

// MaxRanks is the most ranks of a world: what calls tell of all ranks must fit where they are
// published.
const MaxRanks = 256

// ControlBytes is how much control memory a heap needs for a world of n ranks.
func ControlBytes(n int) int { return boardBytes(n) }

// NewWorld makes a world of n ranks, goroutines of this process. It panics if n is not from 1 to
// MaxRanks.
func NewWorld(n int) *World {
	if n < 1 || n > MaxRanks {
		panic(fmt.Sprintf("collective: a world of %d ranks: 1 to %d are possible", n, MaxRanks))
	}
	return newWorld(&Placement{Names: []string{"localhost"}, First: []int{0}, Ranks: n}, 0)
}

// newWorld makes the ranks of one host, as goroutines.
func newWorld(p *Placement, host int) *World {
	part := p.Part(host)
	w := &World{heap: heap.New(part, ControlBytes(p.Ranks)), placement: p, comms: make([]*Comm, p.Ranks), sent: make([]atomic.Int64, p.Ranks)}
	g := w.worldGroup()
	for r := part.First; r < part.First+part.Ranks; r++ {
		w.comms[r] = newComm(g, r)
	}
	return w
}

// Join makes this process one rank of the world whose ranks share h, made with [ControlBytes] of
// control memory.
func Join(h *heap.Heap, rank int) (*World, error) {
	return JoinHosts(h, rank, &Placement{Names: []string{"localhost"}, First: []int{0}, Ranks: h.Ranks()}, nil)
}

// JoinHosts is Join for a world of several hosts, whose ranks on this one share h, and reach the
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
// comes to a collective later, on any communicator of the world, gets an [AbortError]. The first
// Abort wins.
//
// A collective that all ranks have entered is still carried out if they are goroutines, so that no
// rank returns while a peer reads its memory.
func (w *World) Abort(rank int, err error) { w.abort(rank, rank, err) }

// abort is Abort, declared by a rank that may be another.
func (w *World) abort(rank, by int, err error) {
	if err == nil {
		panic("collective: Abort without an error")
	}
	w.failure.CompareAndSwap(nil, &failure{rank, err})
	f := w.failure.Load()
	w.heap.Fail(f.rank, by, f.err.Error())
}

// failed is the failure of the world, if there is one.
func (w *World) failed() *failure {
	if !w.heap.Failed() {
		return nil
	}
	declared, _ := w.heap.Failure()
	if f := w.failure.Load(); f != nil && f.rank == declared.Rank {
		return f
	}
	return &failure{declared.Rank, errors.New(declared.Text)}
}

// Run calls f once for every rank of this process, each in its own goroutine, and waits for all. A
// rank whose f returns an error aborts the world; so does one that waits for a rank whose f has
// returned. Run returns a [RankError] of the rank that failed first, on whichever host. Checked by
// internal/model.
func (w *World) Run(f func(c *Comm) error) error {
	var wg sync.WaitGroup
	w.setState(heap.Running)
	if w.limits.Wait > 0 {
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			w.watch(done)
			close(ended)
		}()
		defer func() {
			close(done)
			<-ended
		}()
	}
	stop := w.startPulse()
	for _, c := range w.comms {
		if c == nil {
			continue
		}
		wg.Go(func() {
			if err := f(c); err != nil {
				w.Abort(c.rank, err)
			}
			fault.Point(fault.BeforeLeave)
			w.heap.SetState(c.rank, heap.Finished)
		})
	}
	wg.Wait()
	stop()
	if fail := w.failed(); fail != nil {
		return &RankError{fail.rank, fail.err}
	}
	if !w.heap.Shared() {
		w.setState(heap.Absent)
	}
	return nil
}

func (w *World) setState(s heap.State) {
	for r, c := range w.comms {
		if c != nil {
			w.heap.SetState(r, s)
		}
	}
}
