package tensor

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A pool is the threads of one rank: the goroutine that owns the Exec, and helpers that work
// off their parts of a kernel at the same time. A helper that has nothing to do spins for a
// moment, because the next kernel usually follows at once and waking a sleeper costs as much
// as a small product, and then sleeps.
type pool struct {
	helpers []*helper
	pending atomic.Int32        // helpers that have not finished their part
	failure atomic.Pointer[any] // the first panic of a helper

	// What is under way: body for the parts of items. body is nil in between.
	body         func(ex *Exec, o operands, lo, hi int)
	operands     operands
	items, parts int

	tasks []any // of Parallel: a *task for each type of argument
}

// helper is one goroutine of a pool with its own scratch memory.
type helper struct {
	ex     *Exec
	number int           // of its part, from 1
	round  atomic.Uint32 // raised by the owner when there is work
	asleep atomic.Bool
	wake   chan struct{}
	stop   bool // read after a raise of round
}

// spinTime is how long a helper waits before it sleeps.
const spinTime = 50 * time.Microsecond

func newPool(threads int) *pool {
	p := &pool{}
	for i := 1; i < threads; i++ {
		h := &helper{ex: &Exec{}, number: i, wake: make(chan struct{}, 1)}
		p.helpers = append(p.helpers, h)
		go h.loop(p)
	}
	return p
}

// run does all parts, number 0 on the caller, and returns when all are done.
func (p *pool) run(ex *Exec) {
	p.pending.Store(int32(p.parts - 1))
	for _, h := range p.helpers[:p.parts-1] {
		h.raise()
	}
	defer p.join()
	p.do(ex, 0)
}

// join waits for the helpers, also when the caller's own part panics: they read its memory.
func (p *pool) join() {
	for spins := 0; p.pending.Load() > 0; spins++ {
		if spins > 1000 {
			runtime.Gosched()
		}
	}
	p.body, p.operands = nil, operands{}
	if failure := p.failure.Swap(nil); failure != nil {
		panic(*failure)
	}
}

// do does one part.
func (p *pool) do(ex *Exec, part int) {
	p.body(ex, p.operands, p.items*part/p.parts, p.items*(part+1)/p.parts)
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
}

// leastWork is the number of operations that is worth waking a second thread.
const leastWork = 1 << 20

// parallel calls body for parts [lo, hi) of n items on the threads of ex, each with an Exec of its
// own. Little work stays on the caller, as does all that a part of parallel work calls.
func (ex *Exec) parallel(n, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	p := ex.pool
	if p == nil || p.body != nil || n < 2 || work < leastWork {
		body(ex, o, 0, n)
		return
	}
	p.body, p.operands, p.items, p.parts = body, o, n, min(len(p.helpers)+1, n)
	p.run(ex)
}

// byColumns is parallel over the columns of matrix products, in whole tiles: each element is
// summed by one thread in the order of the contraction, whatever the number of threads.
func (ex *Exec) byColumns(cols, work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	ex.parallel((cols+tileCols-1)/tileCols, work, o, body)
}

// tileCols is the width of the tiles that byColumns counts; columns turns a part into columns.
const tileCols = 32

func columns(m Matrix, lo, hi int) Matrix {
	return m.ColSlice(min(lo*tileCols, m.Cols), min(hi*tileCols, m.Cols))
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
		if h.stop {
			return
		}
		h.work(p)
	}
}

// work does one part. A panic is the owner's to see.
func (h *helper) work(p *pool) {
	defer p.pending.Add(-1)
	defer func() {
		if cause := recover(); cause != nil {
			failure := cause // a variable of its own, so that only a panic allocates
			p.failure.CompareAndSwap(nil, &failure)
		}
	}()
	p.do(h.ex, h.number)
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
		h.stop = true
		h.raise()
	}
}
