package collective

// Limits on waiting, for ranks that others wait for without end because they compute for ever or
// have stopped silently.

import (
	"errors"
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

// endTime is how long goroutine ranks may compute on after one was found to be late.
const endTime = time.Second

// lateError says that a rank has computed for longer than the limit.
type lateError string

// Error implements error.
func (e lateError) Error() string { return string(e) }

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
			f := w.failed()
			if since.IsZero() && (f != nil || len(running) < ranks) {
				since = now
			}
			limit := w.limits.Wait
			if f != nil && errors.As(f.err, new(lateError)) {
				limit = endTime
			}
			if !since.IsZero() && now.Sub(since) >= limit && !w.heap.Shared() {
				return w.tooLate(slices.Min(slices.Collect(maps.Keys(running))), f)
			}
		}
	}
	return nil
}

// tooLate returns the error of a rank that computes on after a failure; nil: after another rank has
// finished.
func (w *World) tooLate(rank int, f *failure) error {
	if f == nil {
		err := lateError(fmt.Sprintf("it has not ended within %v after another rank had", w.limits.Wait))
		w.Abort(rank, err)
		return &RankError{rank, err}
	}
	if f.rank == rank {
		return &RankError{rank, f.err}
	}
	return &RankError{f.rank, fmt.Errorf("%w; rank %d has not ended since", f.err, rank)}
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
			w.abort(world, c.group.worldRanks[c.rank], lateError(fmt.Sprintf("it has not come to %s within %v", c.slot(c.rank).describe(c.Size()), w.limits.Wait)))
			return
		}
	}
}
