package collective

// Counters of a rank's calls on a communicator, which are always on.

import (
	"time"
)

// Stat counts one kind of collective.
type Stat struct {
	Calls int64         // calls, including failed ones
	Bytes int64         // payload of the calls that succeeded, see [Stats]
	Wait  time.Duration // time spent waiting for other ranks
}

// Stats has one Stat per Kind, indexed by Kind.
//
// Bytes is the message size as nccl-tests counts it: the buffer of an all-reduce, the whole
// output of an all-gather, and the whole input of a reduce-scatter. In an all-to-all it is what
// this rank receives, including from itself. In a dispatch or combine it is what this rank writes
// to or reads from the ranks' memory. Of messages it is what this rank sends.
type Stats [numKinds]Stat

// Stats returns the counters of this rank since the communicator was created. Like every method of
// a Comm it is for the rank's own goroutine.
func (c *Comm) Stats() Stats { return c.stats }

// ObserveWaits calls f after each time that this rank has waited for others; nil ends that.
func (c *Comm) ObserveWaits(f func(kind Kind, start time.Time, took time.Duration)) {
	c.wait.observe = f
}
