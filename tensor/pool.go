package tensor

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A pool is the threads of one rank: the goroutine that owns the Exec, and helpers. All take parts
// of a kernel until there are none left, so that one whose core is slow, or who wakes late, holds
// nobody up. A helper that has nothing to do spins for a moment, because the next kernel usually
// follows at once and waking a sleeper costs as much as a small product, and then sleeps.
type pool struct {
	helpers []*helper
	working atomic.Int32        // helpers at work, and closed unless more may join them
	failure atomic.Pointer[any] // the first panic of a helper

	// What is under way: body for the parts of items, each so many. body is nil in between.
	body        func(ex *Exec, o operands, lo, hi int)
	operands    operands
	items, part int
	next        atomic.Int64 // the first item that nobody has taken

	tasks []any // of Parallel: a *task for each type of argument
}

// closed is more than there are helpers.
const closed = 1 << 30

// helper is one goroutine of a pool with its own scratch memory.
type helper struct {
	ex     *Exec
	round  atomic.Uint32 // raised by the owner when there is work
	asleep atomic.Bool
	wake   chan struct{}
	stop   atomic.Bool // there will be no more work
}

// spinTime is how long a helper waits before it sleeps: longer than what lies between kernels, such as the choice of experts.
const spinTime = 500 * time.Microsecond

func newPool(threads int) *pool {
	p := &pool{}
	p.working.Store(closed)
	for range threads - 1 {
		h := &helper{ex: &Exec{}, wake: make(chan struct{}, 1)}
		p.helpers = append(p.helpers, h)
		go h.loop(p)
	}
	return p
}

// run does all parts on the caller and up to so many helpers, and returns when all are done.
func (p *pool) run(ex *Exec, helpers int) {
	p.next.Store(0)
	p.working.Store(0)
	for _, h := range p.helpers[:helpers] {
		h.raise()
	}
	defer p.join()
	p.do(ex)
}

// join waits for the helpers that have begun, also when the caller's own part panics: they read its memory.
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

// joinSpins is how often the owner looks before it lets others use its core: some 10 µs, as long as parts often differ.
const joinSpins = 10000

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

// do takes parts while there are any.
func (p *pool) do(ex *Exec) {
	for {
		hi := int(p.next.Add(int64(p.part)))
		if lo := hi - p.part; lo < p.items {
			p.body(ex, p.operands, lo, min(hi, p.items))
		} else {
			return
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
	packed     *Packed
	accumulate bool
	span       int
	grid       grid
}

// leastWork is the number of operations that is worth waking a second thread.
const leastWork = 1 << 20

// partsPerThread is how many parts a thread would take if all were as fast.
const partsPerThread = 4

// parallel calls body for parts [lo, hi) of n items on the threads of ex, each with an Exec of its
// own. Little work stays on the caller, as does all that a part of parallel work calls.
func (ex *Exec) parallel(n, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	threads := max(min(ex.threads(work), n), 1)
	ex.inParts(n, tiles(n, partsPerThread*threads), threads, o, body)
}

// threads is how many are worth using for some work.
func (ex *Exec) threads(work int) int {
	if ex.pool == nil || ex.pool.body != nil || work < leastWork {
		return 1
	}
	return len(ex.pool.helpers) + 1
}

// inParts is parallel for parts of so many items on so many threads.
func (ex *Exec) inParts(n, part, threads int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	if threads < 2 {
		body(ex, o, 0, n)
		return
	}
	p := ex.pool
	p.body, p.operands, p.items, p.part = body, o, n, part
	p.run(ex, threads-1)
}

// raise gives a helper its next round.
func (h *helper) raise() {
	h.round.Add(1)
	if h.asleep.CompareAndSwap(true, false) {
		h.wake <- struct{}{}
	}
}

func (h *helper) loop(p *pool) {
	for seen := uint32(0); ; {
		seen = h.await(seen)
		if h.stop.Load() {
			return
		}
		h.work(p)
	}
}

// work takes parts. A panic is the owner's to see.
func (h *helper) work(p *pool) {
	if !p.enter() {
		return
	}
	defer p.working.Add(-1)
	defer func() {
		if cause := recover(); cause != nil {
			failure := cause // a variable of its own, so that only a panic allocates
			p.failure.CompareAndSwap(nil, &failure)
		}
	}()
	p.do(h.ex)
}

// await returns the number of the round after seen, when it has begun.
func (h *helper) await(seen uint32) uint32 {
	for {
		for begin := time.Now(); time.Since(begin) < spinTime; {
			for range 100 {
				if round := h.round.Load(); round != seen {
					return round
				}
			}
		}
		h.asleep.Store(true)
		// A raise between the last look and the store above saw us awake: look once more.
		if round := h.round.Load(); round != seen && h.asleep.CompareAndSwap(true, false) {
			return round
		}
		<-h.wake
		// An owner that was held up inside raise wakes us for a round that we have already done:
		// so look at the number, as ever.
	}
}

// close ends the helpers.
func (p *pool) close() {
	for _, h := range p.helpers {
		h.stop.Store(true)
		h.raise()
	}
}
