package tensor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"spmoe/tensor/profile"
)

// A Team is the threads of the ranks that are goroutines of one process. Each rank's goroutine is a
// member. All other threads are helpers. The owner of a kernel, the helpers, and members that wait
// for other ranks all take parts of the kernel. A rank with more work or a slower core therefore
// does not hold up the others. Results do not depend on which thread takes which part.
type Team struct {
	queues   []*workQueue // one per member
	helpers  []*helper
	noHelp   bool         // no thread is ever free to help
	portable bool         // see MakePortable
	waiting  atomic.Int32 // number of members that wait and can help
	sleepers atomic.Int32
	stop     atomic.Bool // no more work will come
}

// helper is a goroutine that only helps members.
type helper struct {
	team   *Team
	home   int // index of the member to help first
	ex     Exec
	asleep atomic.Bool
	wake   chan struct{}
}

// spinTime is the time for which a helper looks for work before it sleeps. It is longer than the
// pauses between kernels, such as the choice of experts.
const spinTime = 500 * time.Microsecond

// NewTeam returns a team with the given number of members, and of threads per member. Close it when
// no member computes any more.
func NewTeam(members, threads int) *Team {
	t := &Team{}
	for i := range members {
		t.queues = append(t.queues, newWorkQueue(t, i))
	}
	for i := range members * (max(threads, 1) - 1) {
		h := &helper{team: t, home: i % members, wake: make(chan struct{}, 1)}
		t.helpers = append(t.helpers, h)
		go h.loop()
	}
	// Members that share processors yield theirs when they wait.
	t.noHelp = len(t.helpers) == 0 && (members == 1 || members > runtime.GOMAXPROCS(0))
	return t
}

// MakePortable makes products of BF16 and FP32 matrices have the same bits on every CPU tier.
// Without it AMX, BFMMLA and plain Go have other bits. It must be called before Join.
func (t *Team) MakePortable() {
	t.portable = true
	for _, h := range t.helpers {
		h.ex.gemm.Portable = true
	}
}

// Join returns the Exec of a free member. The member leaves the team when the Exec is closed.
func (t *Team) Join() *Exec {
	for _, q := range t.queues {
		if q.owned.CompareAndSwap(false, true) {
			ex := &Exec{queue: q}
			ex.gemm.Portable = t.portable
			// A member that helps waits between two kernels of its own, so its buffers are free.
			q.helperExec.shared = &ex.gemm
			return ex
		}
	}
	panic(fmt.Sprintf("tensor: more than %d members join a team", len(t.queues)))
}

// Close stops the helpers.
func (t *Team) Close() {
	t.stop.Store(true)
	t.wakeHelpers(0, len(t.helpers))
}

// threadsPerMember returns the number of threads per member that is not waiting.
func (t *Team) threadsPerMember() int {
	busy := len(t.queues) - int(t.waiting.Load())
	return (len(t.queues) + len(t.helpers)) / max(busy, 1)
}

// wakeHelpers wakes up to n sleeping helpers, starting with those of member home.
func (t *Team) wakeHelpers(home, n int) {
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

// help runs a part of a member's kernel, if there is one. It tries the members in order from home.
// It reports whether it ran a part.
func (t *Team) help(ex *Exec, home int) bool {
	q, lo := t.claimPart(home)
	if q != nil {
		q.runClaimed(ex, lo)
	}
	return q != nil
}

// claimPart takes a part from the first member, in order from home, that has one. A nil queue means
// that there is none.
func (t *Team) claimPart(home int) (q *workQueue, lo int) {
	for i := range t.queues {
		q = t.queues[(home+i)%len(t.queues)]
		if lo, ok := q.claimPart(); ok {
			return q, lo
		}
	}
	return nil, 0
}

func (h *helper) loop() {
	debug.SetPanicOnFault(true) // a panic of a part is its owner's
	for !h.team.stop.Load() {
		if !h.poll() {
			h.sleep()
		}
	}
}

// poll helps until there has been no work for spinTime. It reports whether it ran a part.
func (h *helper) poll() (helped bool) {
	for begin := time.Now(); time.Since(begin) < spinTime; {
		for range 16 {
			if h.team.help(&h.ex, h.home) {
				return true
			}
		}
	}
	return false
}

// sleep returns when the helper is woken. A kernel that started before the helper was marked asleep
// woke no helper, so sleep looks for such work first.
func (h *helper) sleep() {
	h.team.sleepers.Add(1)
	h.asleep.Store(true)
	if (h.team.stop.Load() || h.team.help(&h.ex, h.home)) && h.asleep.CompareAndSwap(true, false) {
		h.team.sleepers.Add(-1)
		return
	}
	<-h.wake
}

// Idle records whether the rank of ex waits for others and calls Help meanwhile.
func (ex *Exec) Idle(waits bool) {
	switch {
	case ex.queue == nil:
	case waits:
		ex.queue.team.waiting.Add(1)
	default:
		ex.queue.team.waiting.Add(-1)
	}
}

// Help runs one part of another member's kernel, if there is one, and returns the time when it
// began. A rank calls Help while it waits. It returns late by no more than one part.
func (ex *Exec) Help() (begin time.Time, helped bool) {
	if ex.queue == nil {
		return begin, false
	}
	q, lo := ex.queue.team.claimPart(ex.queue.member)
	if q == nil {
		return begin, false
	}
	begin = time.Now()
	defer ex.Profiling(profile.Helping).End()
	q.runClaimed(ex.queue.helperExec, lo)
	return begin, true
}

// Share calls do for parts [lo, hi) of n items on the threads of ex. bytes is the total number of
// bytes to move.
func (ex *Exec) Share(n, bytes int, do func(lo, hi int)) {
	Parallel(ex, n, bytes*rowWork/4, do, func(_ *Exec, do func(lo, hi int), lo, hi int) { do(lo, hi) })
}
