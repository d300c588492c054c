package collective

// Limits on waiting, for ranks that others wait for without end because they compute for ever or
// have stopped silently.

import (
	"fmt"
	"maps"
	"slices"
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

// endTime is how long goroutine ranks may compute on after a failure.
const endTime = 30 * time.Second

// awaitRanks waits for the ranks of this process, and lets their waits check their limits. A
// goroutine cannot be killed: if one computes on for too long after another rank has failed or
// finished, awaitRanks returns why the process should end.
func (w *World) awaitRanks(running map[int]bool, ended <-chan int) error {
	var look <-chan time.Time
	if w.limits.Wait > 0 {
		ticker := time.NewTicker(lookTime)
		defer ticker.Stop()
		look = ticker.C
	}
	var since time.Time // of the first failure or end
	for ranks := len(running); len(running) > 0; {
		select {
		case rank := <-ended:
			delete(running, rank)
		case now := <-look:
			w.wake()
			f, limit := w.failed(), w.limits.Wait
			if f != nil {
				limit = min(limit, endTime)
			}
			switch late := slices.Min(slices.Collect(maps.Keys(running))); {
			case w.heap.Shared() || f == nil && len(running) == ranks:
			case since.IsZero():
				since = now
			case now.Sub(since) < limit:
			case f == nil:
				w.Abort(late, fmt.Errorf("it has not ended within %v after another rank had", limit))
			default:
				return &RankError{f.rank, fmt.Errorf("%w; rank %d has not ended since", f.err, late)}
			}
		}
	}
	return nil
}

// wake makes the ranks of this process look at their limits.
func (w *World) wake() {
	defer w.contain()
	if !w.heap.Shared() {
		w.heap.RingAll()
		return
	}
	for r, c := range w.comms {
		if c != nil {
			w.heap.Ring(r)
		}
	}
}

// overdue declares the failure of a rank that this rank has awaited for longer than the limit.
func (c *Comm) overdue(start time.Time) {
	w := c.group.world
	if w.limits.Wait == 0 || time.Since(start) < w.limits.Wait || w.heap.Failed() {
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
