package collective

// A group is where the goroutine ranks of one communicator meet: a slot per rank for its published call, and a
// barrier that spins briefly, then parks on a condition variable.
//
// A collective is open (all have published; the last to arrive checks that the calls agree), the ranks' work on each
// other's memory, and rejoin (all have finished). Only open can be aborted: past it every peer is running code of this
// package and is bound to arrive, and returning early would free memory that a peer still reads.

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spinTime is how long a rank looks for its peers before it parks. It spans the usual jitter between ranks that do
// equal work; waking a parked goroutine on an idle core takes longer.
const spinTime = 20 * time.Microsecond

type group struct {
	world      *World
	name       string
	worldRanks []int  // by rank of this group
	calls      []call // by rank; rank r writes slot r, the others read it between open and the last rejoin

	mu      sync.Mutex
	cond    sync.Cond
	arrived int
	parked  int
	round   atomic.Uint64 // completed meetings; written under mu, read without by those who spin
	verdict error         // of the calls met last; replaced only after every rank has read it and arrived again
	left    *failure      // a rank that will make no more calls
}

func newGroup(w *World, name string, worldRanks []int) *group {
	g := &group{world: w, name: name, worldRanks: worldRanks, calls: make([]call, len(worldRanks))}
	g.cond.L = &g.mu
	w.register(g)
	return g
}

// open brings in the call that rank has published, waits for the other ranks' and returns what is wrong with them:
// the same error on every rank, or an AbortError if the world has failed.
func (g *group) open(rank int) error {
	g.mu.Lock()
	if f := g.failed(); f != nil {
		g.mu.Unlock()
		return g.aborted(f, rank)
	}
	if g.arrive() {
		verdict := g.check()
		g.verdict = verdict
		g.release()
		return verdict
	}
	for round := g.spin(); g.round.Load() == round; g.park() {
		if f := g.failed(); f != nil {
			g.mu.Unlock()
			return g.aborted(f, rank)
		}
	}
	verdict := g.verdict
	g.mu.Unlock()
	return verdict
}

// rejoin waits for every rank of an opened call.
func (g *group) rejoin() {
	g.mu.Lock()
	if g.arrive() {
		g.release()
		return
	}
	for round := g.spin(); g.round.Load() == round; {
		g.park()
	}
	g.mu.Unlock()
}

func (g *group) arrive() (last bool) {
	g.arrived++
	return g.arrived == len(g.calls)
}

// release lets everyone go, the lock too. It gives way to those it wakes: they would otherwise wait in this
// processor's queue until it is stolen from, which takes an idle processor some 50 us.
func (g *group) release() {
	g.arrived = 0
	g.round.Add(1)
	parked := g.parked
	g.cond.Broadcast()
	g.mu.Unlock()
	if parked > 0 {
		runtime.Gosched()
	}
}

// spin returns the round to wait for the end of, having looked for that with the lock open for a short while if
// every rank has a processor.
func (g *group) spin() uint64 {
	round := g.round.Load()
	if !g.world.spins {
		return round
	}
	g.mu.Unlock()
	for start := time.Now(); time.Since(start) < spinTime; {
		for range 16 {
			if g.round.Load() != round {
				g.mu.Lock()
				return round
			}
		}
	}
	g.mu.Lock()
	return round
}

func (g *group) park() {
	g.parked++
	g.cond.Wait()
	g.parked--
}

// failed is the reason why no further call of this group can complete, if there is one. The lock is held.
func (g *group) failed() *failure {
	if f := g.world.failure.Load(); f != nil {
		return f
	}
	return g.left
}

// leave ends the waits for a rank that will not come, if it is of this group; a nil failure lets it come again.
func (g *group) leave(rank int, f *failure) {
	if !slices.Contains(g.worldRanks, rank) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = f
	g.cond.Broadcast()
}

// wake makes the waiters look at the world's failure again.
func (g *group) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cond.Broadcast()
}
