package collective

// How ranks of one process help each other: what a rank does while it waits for others, how long it
// waits, and which threads take part in a large collective.

import (
	"time"

	"spmoe/collective/heap"
)

// A Helper gives a waiting rank work of other ranks, and lets other threads share the work of a
// rank. See tensor.Exec.
type Helper interface {
	// Idle says that the rank begins or ends a wait.
	Idle(waits bool)

	// Help does a small piece of work, if there is one, and returns when the work began.
	Help() (begin time.Time, helped bool)

	// Share calls do for parts [lo, hi) of n items, which move bytes bytes in total, on this
	// goroutine and on idle threads. It returns when all parts are done.
	Share(n, bytes int, do func(lo, hi int))
}

// waiter is the state of the current wait, and its observers.
type waiter struct {
	kind    Kind
	start   time.Time                                            // of the current interval of pure waiting
	helper  Helper                                               // nil: none
	observe func(kind Kind, start time.Time, took time.Duration) // nil: none
}

// SetHelper gives this rank work to do while it waits in calls of c, if it has a processor for
// itself; nil ends that.
func (c *Comm) SetHelper(h Helper) { c.wait.helper = h }

// spread calls do for parts of n items, with the help of other threads if this rank has a Helper.
func (c *Comm) spread(n, bytes int, do func(lo, hi int)) {
	if h := c.wait.helper; h != nil {
		h.Share(n, bytes, do)
		return
	}
	do(0, n)
}

// idler returns what the heap calls while a rank waits; nil: nothing.
func (c *Comm) idler() heap.Idler {
	if c.wait.helper == nil {
		return nil
	}
	return idler{c}
}

// idler adapts a waiting rank to the heap's interface.
type idler struct{ c *Comm }

func (i idler) Idle(waits bool) { i.c.wait.helper.Idle(waits) }

// Help ends an interval of waiting, and begins another one.
func (i idler) Help() bool {
	w := &i.c.wait
	begin, helped := w.helper.Help()
	if helped {
		i.c.countWait(begin)
		w.start = time.Now()
	}
	return helped
}

// beginWait begins a wait.
func (c *Comm) beginWait(kind Kind, start time.Time) {
	w := &c.wait
	w.kind, w.start = kind, start
}

// countWait counts the time until now as pure waiting.
func (c *Comm) countWait(now time.Time) {
	w := &c.wait
	took := now.Sub(w.start)
	c.stats[w.kind].Wait += took
	if w.observe != nil {
		w.observe(w.kind, w.start, took)
	}
}
