package tensor

import (
	"runtime"
	"sync/atomic"
)

// A workQueue holds the kernel that a member of a team is running, divided into parts. Free threads
// take one part after the other. A thread that is slow or that starts late therefore delays the
// others by no more than one part.
type pool struct {
	team    *Team
	joined  atomic.Bool
	number  int                 // index of the member in the team
	aside   *Exec               // used by the member for parts of other members' kernels
	working atomic.Int32        // number of helpers at work, plus closed unless more may join
	failure atomic.Pointer[any] // the first panic of a helper

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

func newPool(t *Team, number int) *pool {
	p := &pool{team: t, number: number, aside: &Exec{}}
	p.working.Store(closed)
	return p
}

// run runs all parts on the threads that are free, and returns when all are complete.
func (p *pool) run(ex *Exec) {
	p.next.Store(0)
	p.working.Store(0)
	p.team.rouse(p.number, (p.items-1)/p.part)
	defer p.join()
	for lo, ok := p.take(); ok; lo, ok = p.take() {
		p.do(ex, lo)
	}
}

// wait waits for the helpers that have begun, because they read the owner's memory. It does so even
// if the owner's own part panics.
func (p *pool) join() {
	p.working.Or(closed)
	for spins := 1; p.working.Load() > closed; spins++ {
		if spins%joinSpins == 0 {
			runtime.Gosched()
		}
	}
	p.body, p.operands = nil, operands{}
	if failure := p.failure.Swap(nil); failure != nil {
		panic(*failure)
	}
}

// waitSpins is the number of checks before the owner yields its core. They take about 10 µs, a
// typical difference between the times of two parts.
const joinSpins = 10000

// takePart takes the next part and returns its first item. If no part is left, it closes the queue.
func (p *pool) take() (lo int, ok bool) {
	hi := int(p.next.Add(int64(p.part)))
	if lo = hi - p.part; lo >= p.items {
		p.working.Or(closed)
		return 0, false
	}
	return lo, true
}

// runPart runs the part that begins with item lo.
func (p *pool) do(ex *Exec, lo int) {
	p.body(ex, p.operands, lo, min(lo+p.part, p.items))
}

// claimPart is takePart for a helper. After ok the helper must call runClaimed.
func (p *pool) claim() (lo int, ok bool) {
	if !p.enter() {
		return 0, false
	}
	if lo, ok = p.take(); !ok {
		p.working.Add(-1)
	}
	return lo, ok
}

// runClaimed runs a part from claimPart. A panic is passed on to the owner.
func (p *pool) help(ex *Exec, lo int) {
	defer p.working.Add(-1)
	defer func() {
		if cause := recover(); cause != nil {
			failure := cause // a variable of its own, so that only a panic allocates
			p.failure.CompareAndSwap(nil, &failure)
		}
	}()
	p.do(ex, lo)
}

// enter registers a helper, unless all parts are taken.
func (p *pool) enter() bool {
	for {
		n := p.working.Load()
		if n >= closed {
			return false
		}
		if p.working.CompareAndSwap(n, n+1) {
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
	grid       grid
}

// leastWork is the smallest number of operations that is worth sharing with another thread.
const leastWork = 1 << 20

// partsPerThread is the number of parts per thread if all threads are equally fast.
const partsPerThread = 4

// parallel divides n items into parts [lo, hi) and calls body for each on the threads of ex, each
// with an Exec of its own. A small job stays on the calling thread. So does every call from within
// a part.
func (ex *Exec) parallel(n, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	ex.inParts(n, max(1, tiles(n, partsPerThread*ex.threads(work))), work, o, body)
}

// worthSharing reports whether the work is large enough to share and another thread may be free.
func (ex *Exec) shares(work int) bool {
	return ex.pool != nil && ex.pool.body == nil && work >= leastWork && !ex.pool.team.alone
}

// threads returns the number of threads that are likely to share the work.
func (ex *Exec) threads(work int) int {
	if !ex.shares(work) {
		return 1
	}
	return ex.pool.team.share()
}

const (
	// productPartWork is a number of operations that takes about 100 µs. A waiting rank that helps
	// returns late by no more than that.
	pieceWork = 1 << 25

	// maxPartsPerThread is small because operands that several parts need are packed for each part.
	morePieces = 2
)

// productParts returns the best number of parts for a product: one per thread that is likely to
// help. A long product has more parts, so that threads that are busy now can join later.
func (ex *Exec) pieces(work int) int {
	if !ex.shares(work) {
		return 1
	}
	threads := ex.threads(work)
	return max(threads, min(work/pieceWork, morePieces*threads))
}

// runInParts calls body for parts of part items, or once for all items if the work is too small to
// share.
func (ex *Exec) inParts(n, part, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	if n <= part || !ex.shares(work) {
		body(ex, o, 0, n)
		return
	}
	p := ex.pool
	p.body, p.operands, p.items, p.part = body, o, n, part
	p.run(ex)
}
