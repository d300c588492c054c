package collective

// Limits on waiting, for ranks that others wait for without end because they compute for ever or
// have stopped silently.

import (
	"fmt"
	"time"
)

// Limits are limits on waiting for other ranks. The zero Limits is the default.
type Limits struct {
	Wait time.Duration // for a rank in a collective; 0: no limit
	// for a sign of life of another host, which each sends every second; 0: no limit
	Host time.Duration
}

// lookTime is the interval at which a wait checks its limit.
const lookTime = 50 * time.Millisecond

// SetLimits is called before Run.
func (w *World) SetLimits(l Limits) { w.limits = l }

// watch lets the waits of this process check their limits, until done.
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

// overdue declares the failure of a rank that this rank has awaited for longer than the limit.
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
