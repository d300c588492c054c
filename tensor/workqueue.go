package tensor

import (
	"runtime"
	"sync/atomic"
)

// A workQueue holds the kernel that a member of a team is running, divided into parts. Free threads
// take one part after the other. A thread that is slow or that starts late therefore delays the
// others by no more than one part.
type workQueue struct {
	team       *Team
	owned      atomic.Bool
	member     int                 // index of the member in the team
	helperExec *Exec               // used by the member for parts of other members' kernels
	active     atomic.Int32        // number of helpers at work, plus closed unless more may join
	failure    atomic.Pointer[any] // the first panic of a helper

	// The running kernel: body runs on parts of part items each. Between kernels body is nil.
	body        func(ex *Exec, o operands, lo, hi int)
	operands    operands
	items, part int
	next        atomic.Int64 // the first item that is not taken yet

	tasks []any // tasks of Parallel: one *task per argument type
	_     [64]byte
}

// closed exceeds every possible number of threads.
const closed = 1 << 30

func newWorkQueue(t *Team, member int) *workQueue {
	q := &workQueue{team: t, member: member, helperExec: &Exec{}}
	q.active.Store(closed)
	return q
}

// run runs all parts on the threads that are free, and returns when all are complete.
func (q *workQueue) run(ex *Exec) {
	q.next.Store(0)
	q.active.Store(0)
	q.team.wakeHelpers(q.member, (q.items-1)/q.part)
	defer q.wait()
	for lo, ok := q.takePart(); ok; lo, ok = q.takePart() {
		q.runPart(ex, lo)
	}
}

// wait waits for the helpers that have begun, because they read the owner's memory. It does so even
// if the owner's own part panics.
func (q *workQueue) wait() {
	q.active.Or(closed)
	for spins := 1; q.active.Load() > closed; spins++ {
		if spins%waitSpins == 0 {
			runtime.Gosched()
		}
	}
	q.body, q.operands = nil, operands{}
	if failure := q.failure.Swap(nil); failure != nil {
		panic(*failure)
	}
}

// waitSpins is the number of checks before the owner yields its core. They take about 10 µs, a
// typical difference between the times of two parts.
const waitSpins = 10000

// takePart takes the next part and returns its first item. If no part is left, it closes the queue.
func (q *workQueue) takePart() (lo int, ok bool) {
	hi := int(q.next.Add(int64(q.part)))
	if lo = hi - q.part; lo >= q.items {
		q.active.Or(closed)
		return 0, false
	}
	return lo, true
}

// runPart runs the part that begins with item lo.
func (q *workQueue) runPart(ex *Exec, lo int) {
	q.body(ex, q.operands, lo, min(lo+q.part, q.items))
}

// claimPart is takePart for a helper. After ok the helper must call runClaimed.
func (q *workQueue) claimPart() (lo int, ok bool) {
	if !q.enter() {
		return 0, false
	}
	if lo, ok = q.takePart(); !ok {
		q.active.Add(-1)
	}
	return lo, ok
}

// runClaimed runs a part from claimPart. A panic is passed on to the owner.
func (q *workQueue) runClaimed(ex *Exec, lo int) {
	defer q.active.Add(-1)
	defer func() {
		if cause := recover(); cause != nil {
			failure := cause // a variable of its own, so that only a panic allocates
			q.failure.CompareAndSwap(nil, &failure)
		}
	}()
	q.runPart(ex, lo)
}

// enter registers a helper, unless all parts are taken.
func (q *workQueue) enter() bool {
	for {
		n := q.active.Load()
		if n >= closed {
			return false
		}
		if q.active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// operands holds the arguments of a kernel as one value that helpers can read without the heap. A
// closure would be allocated for every kernel of every step.
type operands struct {
	attention  *attentionCall
	c, a, b    Matrix
	w          Tensor
	ends       []int32
	scaled     [2]Scaled // block-scaled a and b
	accumulate bool
	span       int
	alpha      float32 // multiplies the product; 0: nothing does
	blocks     BlockScales
	grid       grid
	columns    int                                     // of each group's product
	part       func(ex *Exec, o operands, p groupPart) // computes a part of one
}

// leastWork is the smallest number of operations that is worth sharing with another thread.
const leastWork = 1 << 20

// partsPerThread is the number of parts per thread if all threads are equally fast.
const partsPerThread = 4

// parallel divides n items into parts [lo, hi) and calls body for each on the threads of ex, each
// with an Exec of its own. A small job stays on the calling thread. So does every call from within
// a part.
func (ex *Exec) parallel(n, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	ex.runInParts(n, max(1, ceilDiv(n, partsPerThread*ex.threads(work))), work, o, body)
}

// worthSharing reports whether the work is large enough to share and another thread may be free.
func (ex *Exec) worthSharing(work int) bool {
	return ex.queue != nil && ex.queue.body == nil && work >= leastWork && !ex.queue.team.noHelp
}

// threads returns the number of threads that are likely to share the work.
func (ex *Exec) threads(work int) int {
	if !ex.worthSharing(work) {
		return 1
	}
	return ex.queue.team.threadsPerMember()
}

const (
	// productPartWork is a number of operations that takes about 100 µs. A waiting rank that helps
	// returns late by no more than that.
	productPartWork = 1 << 25

	// maxPartsPerThread is small because operands that several parts need are packed for each part.
	maxPartsPerThread = 2
)

// productParts returns the best number of parts for a product: one per thread that is likely to
// help. A long product has more parts, so that threads that are busy now can join later.
func (ex *Exec) productParts(work int) int {
	if !ex.worthSharing(work) {
		return 1
	}
	threads := ex.threads(work)
	return max(threads, min(work/productPartWork, maxPartsPerThread*threads))
}

// runInParts calls body for parts of part items, or once for all items if the work is too small to
// share.
func (ex *Exec) runInParts(n, part, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	if ex.dry {
		body(ex, o, 0, 0)
		return
	}
	if n <= part || !ex.worthSharing(work) {
		body(ex, o, 0, n)
		return
	}
	q := ex.queue
	q.body, q.operands, q.items, q.part = body, o, n, part
	q.run(ex)
}
