package collective

// A rank that others wait for without end: it computes for ever, or has stopped without a word.

import (
	"fmt"
	"time"
)

// Limits are how long ranks put up with each other. The zero Limits is the default.
type Limits struct {
	Wait time.Duration // for a rank in a collective; 0 means for ever
	Host time.Duration // for a sign of life of another host, which each gives every second; 0 means for ever
}

// lookTime is how often a wait looks at its limit.
const lookTime = 50 * time.Millisecond

// SetLimits is called before Run.
func (w *World) SetLimits(l Limits) { w.limits = l }

// watch lets the waits of this process look at their limit, until done.
func (w *World) watch(done <-chan struct{}) {
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		for r, c := range w.comms {
			if c != nil {
				w.heap.Ring(r)
			}
		}
	}
}

// overdue declares failed whom this rank has waited for beyond the limit.
func (c *Comm) overdue(start time.Time) {
	w := c.group.world
	if w.limits.Wait == 0 || time.Since(start) < w.limits.Wait {
		return
	}
	for _, r := range c.group.locals() {
		if world := c.group.worldRanks[r]; c.group.board.arrival(r).round.Load() < c.round {
			err := fmt.Errorf("it has not come to %s within %v", c.slot(c.rank).describe(c.Size()), w.limits.Wait)
			w.abort(world, c.group.worldRanks[c.rank], err)
			return
		}
	}
}
