// Package collective is an MPI-style communicator: ranks meet in collectives, exchange typed slices by memory copy,
// and learn of each other's mistakes and failures as errors instead of deadlocks.
//
// Every rank of a communicator calls the same collectives in the same order, as in MPI. Here this is checked: ranks
// that meet in different calls, or in the same call with arguments that do not fit together, all get a [MismatchError].
package collective

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// World is a set of ranks that live in one process, one goroutine each.
//
// Its communicators, [Comm.Split] ones included, live as long as it does.
type World struct {
	comms   []*Comm
	spins   bool // a waiting rank may hold on to its processor: there is one for every rank
	failure atomic.Pointer[failure]

	mu     sync.Mutex
	groups []*group // every communicator, so that Abort reaches all who wait
}

// failure is the first Abort of a world.
type failure struct {
	rank int
	err  error
}

// NewWorld makes a world of n ranks. It panics if n < 1.
func NewWorld(n int) *World {
	if n < 1 {
		panic(fmt.Sprintf("collective: a world of %d ranks: at least 1 is needed", n))
	}
	w := &World{comms: make([]*Comm, n), spins: n <= runtime.GOMAXPROCS(0)}
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	g := newGroup(w, "world", ranks)
	for r := range w.comms {
		w.comms[r] = newComm(g, r)
	}
	return w
}

// Comm returns the world communicator as seen by one rank. Only that rank's goroutine may use it.
func (w *World) Comm(rank int) *Comm { return w.comms[rank] }

// Abort declares that a rank failed with err, which must not be nil. Every rank that waits now or comes to a
// collective later, on any communicator of the world, gets an [AbortError]. The first Abort wins.
//
// A collective that all ranks have entered is still carried out, so that no rank returns while a peer reads its memory.
func (w *World) Abort(rank int, err error) {
	if err == nil {
		panic("collective: Abort without an error")
	}
	w.failure.CompareAndSwap(nil, &failure{rank, err})
	w.each((*group).wake)
}

// errLeft is the failure of a rank that others wait for after it has finished.
var errLeft = errors.New("it has finished without making this call")

// Run calls f once for every rank, each in its own goroutine, and waits for all. A rank whose f returns an error
// aborts the world; so does one that waits for a rank whose f has returned. Run returns the error of the rank that
// failed first, with its rank.
func (w *World) Run(f func(c *Comm) error) error {
	var wg sync.WaitGroup
	for _, c := range w.comms {
		wg.Go(func() {
			if err := f(c); err != nil {
				w.Abort(c.rank, err)
			}
			w.each(func(g *group) { g.leave(c.rank, &failure{c.rank, errLeft}) })
		})
	}
	wg.Wait()
	if fail := w.failure.Load(); fail != nil {
		return fmt.Errorf("rank %d: %w", fail.rank, fail.err)
	}
	for r := range w.comms {
		w.each(func(g *group) { g.leave(r, nil) })
	}
	return nil
}

// each calls f for every communicator.
func (w *World) each(f func(g *group)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		f(g)
	}
}

func (w *World) register(g *group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups = append(w.groups, g)
}
