package spmd

import (
	"fmt"
	"time"
)

// watchTime is the time between two looks at the next rank.
const watchTime = 50 * time.Millisecond

// Watch looks after the process of the next rank on this host, so that a rank that was stopped is
// noticed although no launcher supervises it. It looks at one process, whatever the number of
// ranks. If the rank has been stopped for silence, it has failed, and failed is called at once. If
// the ranks run, they end with this error; otherwise failed must end this process. Ranks that
// compute for ever, and hosts that are silent, are found by [collective.Limits].
func (c *Cluster) Watch(silence time.Duration, failed func(err error, runs bool)) {
	if c.next() == c.process.Rank {
		return
	}
	go func() {
		pid := c.process.PIDs[c.next()]
		var stopped time.Duration
		last := time.Now()
		for now := range time.Tick(watchTime) {
			state, _, ok := processState(pid)
			if stopped = stoppedFor(stopped, ok && (state == 'T' || state == 't'), now.Sub(last), silence); stopped >= silence {
				c.accuse(fmt.Sprintf("its process %d has been stopped for %v", pid, stopped.Round(10*time.Millisecond)), failed)
				return
			}
			last = now
		}
	}()
}

// stoppedFor adds the time since the last look to the time that a process was seen stopped. No
// single look adds enough to fail it: if the whole job was stopped and goes on, this process may
// look after a long time, and before the other has gone on.
func stoppedFor(before time.Duration, stopped bool, since, silence time.Duration) time.Duration {
	if !stopped {
		return 0
	}
	return before + min(since, (silence+1)/2)
}
