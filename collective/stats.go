package collective

// Always-on counters of what a rank did on a communicator.

import (
	"time"
)

// Stat counts one kind of collective.
type Stat struct {
	Calls int64         // calls, failed ones included
	Bytes int64         // payload of the calls that succeeded, see [Stats]
	Wait  time.Duration // time spent waiting for other ranks
}

// Stats has one Stat for every Kind, indexed by it.
//
// Bytes is the message size as nccl-tests counts it: the buffer of a bcast or all-reduce, the whole
// output of an all-gather, the whole input of a reduce-scatter, what this rank receives, from
// itself too, in an all-to-all, and what it writes to or reads from the ranks' memory in a dispatch
// or combine.
type Stats [numKinds]Stat

// Stats returns the counters of this rank since the communicator was made. Like every method of a
// Comm it is for the rank's own goroutine.
func (c *Comm) Stats() Stats { return c.stats }

// Waits returns, for each rank of the communicator, how long this rank has waited for it: the time
// of a wait is put down to the rank that came last.
func (c *Comm) Waits() []time.Duration { return c.waits }

// ObserveWaits makes f hear of every time that this rank waits for others, when it has; nil ends
// that.
func (c *Comm) ObserveWaits(f func(kind Kind, start time.Time, took time.Duration)) {
	c.wait.observe = f
}
