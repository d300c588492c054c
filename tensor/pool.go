package tensor

import (
	"runtime"
	"sync/atomic"
)

// A pool is what a member of a team has under way: one kernel, in parts that whoever has time takes
// one after the other, so that one whose core is slow, or who comes late, holds nobody up.
type pool struct {
	team    *Team
	joined  atomic.Bool
	number  int                 // of the member
	aside   *Exec               // with which the member takes parts of others' work
	working atomic.Int32        // others at work, and closed unless more may join them
	failure atomic.Pointer[any] // the first panic of one of them

	// What is under way: body for the parts of items, each so many. body is nil in between.
	body        func(ex *Exec, o operands, lo, hi int)
	operands    operands
	items, part int
	next        atomic.Int64 // the first item that nobody has taken

	tasks []any // of Parallel: a *task for each type of argument
	_     [64]byte
}

// closed is more than there are threads.
const closed = 1 << 30

func newPool(t *Team, number int) *pool {
	p := &pool{team: t, number: number, aside: &Exec{}}
	p.working.Store(closed)
	return p
}

// run does all parts, with whoever has time, and returns when all are done.
func (p *pool) run(ex *Exec) {
	p.next.Store(0)
	p.working.Store(0)
	p.team.rouse(p.number, (p.items-1)/p.part)
	defer p.join()
	for lo, ok := p.take(); ok; lo, ok = p.take() {
		p.do(ex, lo)
	}
}

// join waits for those that have begun, also when the owner's own part panics: they read its
// memory.
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

// joinSpins is how often the owner looks before it lets others use its core: some 10 µs, as long as
// parts often differ.
const joinSpins = 10000

// take claims the next part, if there is one: its first item. Who finds none closes the work.
func (p *pool) take() (lo int, ok bool) {
	hi := int(p.next.Add(int64(p.part)))
	if lo = hi - p.part; lo >= p.items {
		p.working.Or(closed)
		return 0, false
	}
	return lo, true
}

// do does the part that begins with an item.
func (p *pool) do(ex *Exec, lo int) {
	p.body(ex, p.operands, lo, min(lo+p.part, p.items))
}

// claim is take for one who is not the owner: who gets a part has joined the work, and helps.
func (p *pool) claim() (lo int, ok bool) {
	if !p.enter() {
		return 0, false
	}
	if lo, ok = p.take(); !ok {
		p.working.Add(-1)
	}
	return lo, ok
}

// help does a part that was claimed. A panic is the owner's to see.
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

// enter joins the work under way, unless all of it is taken.
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

// operands are the arguments of a kernel, as one value that helpers can read without the heap:
// a closure would be allocated for every kernel of every step.
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

// leastWork is the number of operations that is worth another thread's attention.
const leastWork = 1 << 20

// partsPerThread is how many parts a thread would take if all were as fast.
const partsPerThread = 4

// parallel calls body for parts [lo, hi) of n items on the threads of ex, each with an Exec of its
// own. Little work stays on the caller, as does all that a part of parallel work calls.
func (ex *Exec) parallel(n, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	ex.inParts(n, max(1, tiles(n, partsPerThread*ex.threads(work))), work, o, body)
}

// shares says whether so much work is worth sharing, and there may be somebody to share it with.
func (ex *Exec) shares(work int) bool {
	return ex.pool != nil && ex.pool.body == nil && work >= leastWork && !ex.pool.team.alone
}

// threads is how many are likely to share some work.
func (ex *Exec) threads(work int) int {
	if !ex.shares(work) {
		return 1
	}
	return ex.pool.team.share()
}

const (
	pieceWork  = 1 << 25 // operations that take some 100 µs: a waiting rank that helps comes back late by no more
	morePieces = 2       // for each thread; what several pieces need is packed for each of them
)

// pieces is how many parts a product of so much work is best cut into: one for each thread that is
// likely to take one, and more of one that takes so long that threads may come which are at work
// now.
func (ex *Exec) pieces(work int) int {
	if !ex.shares(work) {
		return 1
	}
	threads := ex.threads(work)
	return max(threads, min(work/pieceWork, morePieces*threads))
}

// inParts calls body for parts of so many items, or for all where the work is not worth sharing.
func (ex *Exec) inParts(n, part, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	if n <= part || !ex.shares(work) {
		body(ex, o, 0, n)
		return
	}
	p := ex.pool
	p.body, p.operands, p.items, p.part = body, o, n, part
	p.run(ex)
}
