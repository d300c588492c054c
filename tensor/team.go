package tensor

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"spmoe/tensor/profile"
)

// A Team is the threads of the ranks that are goroutines of one process: the goroutine of each
// rank, a member, and helpers. A kernel's parts are taken by its owner, by helpers, and by members
// that wait for other ranks: so a rank with more work than others, or on a slower core, is not what
// all wait for. Results do not depend on who takes what.
type Team struct {
	pools    []*pool // of the members
	helpers  []*helper
	alone    bool         // nobody ever has time for another's work
	waiting  atomic.Int32 // members that wait and can help
	sleepers atomic.Int32
	stop     atomic.Bool // there will be no more work
}

// helper is a goroutine that has no work of its own.
type helper struct {
	team   *Team
	home   int // the member whose work comes first
	ex     Exec
	asleep atomic.Bool
	wake   chan struct{}
}

// spinTime is how long a helper looks for work before it sleeps: longer than what lies between
// kernels, such as the choice of experts.
const spinTime = 500 * time.Microsecond

// NewTeam returns a team of so many members and threads for each. Close it when no member computes
// any more.
func NewTeam(members, threads int) *Team {
	t := &Team{}
	for i := range members {
		t.pools = append(t.pools, newPool(t, i))
	}
	for i := range members * (max(threads, 1) - 1) {
		h := &helper{team: t, home: i % members, wake: make(chan struct{}, 1)}
		t.helpers = append(t.helpers, h)
		go h.loop()
	}
	// Members that share processors leave theirs to others when they wait.
	t.alone = len(t.helpers) == 0 && (members == 1 || members > runtime.GOMAXPROCS(0))
	return t
}

// Join returns what a member computes with until it closes it.
func (t *Team) Join() *Exec {
	for _, p := range t.pools {
		if p.joined.CompareAndSwap(false, true) {
			return &Exec{pool: p}
		}
	}
	panic(fmt.Sprintf("tensor: more than %d members join a team", len(t.pools)))
}

// Close ends the helpers.
func (t *Team) Close() {
	t.stop.Store(true)
	t.rouse(0, len(t.helpers))
}

// share is how many threads each member that does not wait has for itself.
func (t *Team) share() int {
	busy := len(t.pools) - int(t.waiting.Load())
	return (len(t.pools) + len(t.helpers)) / max(busy, 1)
}

// rouse wakes up to n helpers, those of a member first, if they sleep.
func (t *Team) rouse(home, n int) {
	if t.sleepers.Load() == 0 {
		return
	}
	for i := range t.helpers {
		if h := t.helpers[(home+i)%len(t.helpers)]; n > 0 && h.asleep.CompareAndSwap(true, false) {
			t.sleepers.Add(-1)
			h.wake <- struct{}{}
			n--
		}
	}
}

// help does a part of the work of some member, the first from home on that has any. It reports
// whether there was one.
func (t *Team) help(ex *Exec, home int) bool {
	p, lo := t.claim(home)
	if p != nil {
		p.help(ex, lo)
	}
	return p != nil
}

// claim returns a part to do, by the first member from home on that has one; nil: none has.
func (t *Team) claim(home int) (p *pool, lo int) {
	for i := range t.pools {
		p = t.pools[(home+i)%len(t.pools)]
		if lo, ok := p.claim(); ok {
			return p, lo
		}
	}
	return nil, 0
}

func (h *helper) loop() {
	for !h.team.stop.Load() {
		if !h.look() {
			h.sleep()
		}
	}
}

// look helps until there has been nothing to do for a while, and reports whether there was
// anything.
func (h *helper) look() (helped bool) {
	for begin := time.Now(); time.Since(begin) < spinTime; {
		for range 16 {
			if h.team.help(&h.ex, h.home) {
				return true
			}
		}
	}
	return false
}

// sleep returns when the helper is woken. Work that began before it was known to sleep, which woke
// nobody, ends it at once.
func (h *helper) sleep() {
	h.team.sleepers.Add(1)
	h.asleep.Store(true)
	if (h.team.stop.Load() || h.team.help(&h.ex, h.home)) && h.asleep.CompareAndSwap(true, false) {
		h.team.sleepers.Add(-1)
		return
	}
	<-h.wake
}

// Idle says whether the rank that computes with ex waits for others, and calls Help meanwhile.
func (ex *Exec) Idle(waits bool) {
	switch {
	case ex.pool == nil:
	case waits:
		ex.pool.team.waiting.Add(1)
	default:
		ex.pool.team.waiting.Add(-1)
	}
}

// Help does a part of what another member of the team computes, if there is one, and returns when
// it began. A rank calls it while it waits, which takes no more than a part too long.
func (ex *Exec) Help() (begin time.Time, helped bool) {
	if ex.pool == nil {
		return begin, false
	}
	p, lo := ex.pool.team.claim(ex.pool.number)
	if p == nil {
		return begin, false
	}
	begin = time.Now()
	defer ex.Profiling(profile.Helping).End()
	p.help(ex.pool.aside, lo)
	return begin, true
}

// Share calls do for parts [lo, hi) of n items, in which so many bytes are moved, on the threads of
// ex.
func (ex *Exec) Share(n, bytes int, do func(lo, hi int)) {
	Parallel(ex, n, bytes*rowWork/4, do, func(_ *Exec, do func(lo, hi int), lo, hi int) { do(lo, hi) })
}
