package heap

// Waiting: a rank spins briefly if there is a processor per rank, or lets other processes run if
// they share one, and then parks until the bell rings.
//
// No wake-up is lost: a waiter counts itself, reads the bell and then looks once more before it
// parks; a ringer first stores and then looks for waiters. Either the waiter sees what was stored,
// or the ringer sees the waiter and changes the bell.

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ParkVar is the environment variable that makes ranks park as soon as they wait, if it is not
// empty. They leave their processors to other programs, and their own steps take longer.
const ParkVar = "SPMOE_PARK"

// spinTime is how long a rank polls before it parks. It covers the usual jitter between ranks that
// do equal work. Waking a parked goroutine on an idle core takes longer.
const spinTime = 20 * time.Microsecond

// An Idler has work of others for a rank that waits.
type Idler interface {
	// Idle says that the rank begins or ends a wait.
	Idle(waits bool)

	// Help does a small piece of work, if there is one, and reports whether it did.
	Help() bool
}

// Await returns when ready reports true. The rank that makes it true then rings for this one.
// ready is called from this goroutine only, and after each ring. Meanwhile a rank with its own
// processor works for its Idler, if that is not nil.
func (h *Heap) Await(rank int, i Idler, ready func() bool) {
	if ready() || h.poll(rank, i, ready) {
		return
	}
	l := h.line(rank)
	for {
		l.waiting.Add(1)
		bell := l.bell.Load()
		if ready() {
			l.waiting.Add(^uint32(0))
			return
		}
		if h.bells != nil {
			h.bells[h.index(rank)].park(l, bell)
		} else {
			parkInKernel(&l.bell, bell)
		}
		l.waiting.Add(^uint32(0))
	}
}

// patience records the success of a rank's spinning. After spinning in vain, because a processor
// has other work than the awaited rank, the next waits park at once, and their number doubles each
// time.
type patience struct{ misses, skips atomic.Int32 }

const mostMisses = 6

// lasts reports whether to spin now.
func (p *patience) lasts() bool {
	if p.skips.Load() > 0 {
		p.skips.Add(-1)
		return false
	}
	return true
}

// note records whether spinning was successful.
func (p *patience) note(success bool) {
	if success {
		p.misses.Store(0)
		return
	}
	misses := min(p.misses.Add(1), mostMisses)
	p.misses.Store(misses)
	p.skips.Store(1<<misses - 1)
}

// poll waits for a while without parking: by helping, by spinning, or by letting processes run that
// share this processor.
func (h *Heap) poll(rank int, i Idler, ready func() bool) (success bool) {
	if h.parks {
		return false
	}
	if i != nil && h.spins {
		return help(i, ready)
	}
	p := &h.patience[h.index(rank)]
	if !h.spins && h.bells != nil || !p.lasts() {
		return false
	}
	if h.spins { // no function values, because ready would have to be allocated
		success = spin(ready)
	} else {
		success = yield(ready)
	}
	p.note(success)
	return success
}

func spin(ready func() bool) bool {
	for start := time.Now(); time.Since(start) < spinTime; {
		for range 16 {
			if ready() {
				return true
			}
		}
	}
	return false
}

// helpTime is how long a rank looks for work before it parks.
const helpTime = 2 * time.Millisecond

// help works for others until ready reports true, or there has been no work for a while.
func help(i Idler, ready func() bool) bool {
	i.Idle(true)
	defer i.Idle(false)
	for start := time.Now(); time.Since(start) < helpTime; {
		for range 16 {
			if ready() {
				return true
			}
			if i.Help() {
				start = time.Now()
			}
		}
	}
	return false
}

// yieldTime replaces spinTime if processes share processors: several of them run meanwhile.
const yieldTime = 100 * time.Microsecond

func yield(ready func() bool) bool {
	for start := time.Now(); time.Since(start) < yieldTime; {
		yieldToKernel()
		if ready() {
			return true
		}
	}
	return false
}

// Ring wakes a rank if it is parked, after storing something that it may wait for.
func (h *Heap) Ring(rank int) {
	if h.ring(rank) {
		h.yieldToWoken()
	}
}

// RingAll rings for every rank.
func (h *Heap) RingAll() {
	woken := false
	for r := range h.part.Ranks {
		woken = h.ring(h.part.First+r) || woken
	}
	if woken {
		h.yieldToWoken()
	}
}

func (h *Heap) ring(rank int) (woken bool) {
	l := h.line(rank)
	if l.waiting.Load() == 0 {
		return false
	}
	if h.bells != nil {
		h.bells[h.index(rank)].ring(l)
	} else {
		l.bell.Add(1)
		wakeInKernel(&l.bell)
	}
	return true
}

// yieldToWoken lets goroutines run that were woken. Otherwise they would wait in this processor's
// queue until another processor steals them, which takes an idle one about 50 us.
func (h *Heap) yieldToWoken() {
	if h.bells != nil {
		runtime.Gosched()
	}
}

// Waiting returns the number of goroutines of a rank that are parked or about to park.
func (h *Heap) Waiting(rank int) int { return int(h.line(rank).waiting.Load()) }

// bell is where the goroutines of a rank of this process park.
type bell struct {
	mu   sync.Mutex
	cond sync.Cond
	_    [64]byte
}

func (b *bell) park(l *line, seen uint32) {
	b.mu.Lock()
	for l.bell.Load() == seen {
		b.cond.Wait()
	}
	b.mu.Unlock()
}

func (b *bell) ring(l *line) {
	b.mu.Lock()
	l.bell.Add(1)
	b.mu.Unlock()
	b.cond.Broadcast()
}
