package collective

// Signs of life. A process whose death nobody reports, because it is stopped, swapped out or stuck in the kernel, falls silent; a rank
// that computes for ever does not, but lets the others wait.

import (
	"fmt"
	"os"
	"strings"
	"time"

	"spmoe/collective/heap"
)

// Limits are how long ranks put up with each other. The zero Limits is the default.
type Limits struct {
	Silence time.Duration // of a process that gives no sign of life; 0 means DefaultSilence
	Wait    time.Duration // for a rank in a collective; 0 means for ever
}

// DefaultSilence is well above the time for which a busy machine keeps a process from running.
const DefaultSilence = 800 * time.Millisecond

const (
	beatTime = 50 * time.Millisecond
	// starved is how many times longer a process may be silent that waits for a processor.
	starved = 20
)

// SetLimits is called before Run.
func (w *World) SetLimits(l Limits) { w.limits = l }

// watch gives the signs of life of this process and looks for those of the others, until done.
func (w *World) watch(done <-chan struct{}) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		for r, c := range w.comms {
			if c != nil {
				w.heap.Beat(r)
				w.heap.Ring(r) // a wait looks at its limit
			} else if err := w.silent(r); err != nil {
				w.Abort(r, err)
			}
		}
	}
}

// silent is what is wrong with a process that gives no sign of life.
func (w *World) silent(rank int) error {
	limit := w.limits.Silence
	if limit == 0 {
		limit = DefaultSilence
	}
	silence := w.heap.Silence(rank)
	if w.heap.StateOf(rank) != heap.Running || silence < limit {
		return nil
	}
	pid := w.heap.Process(rank)
	state := processState(pid)
	if state == "running" && silence < starved*limit {
		return nil
	}
	return fmt.Errorf("process %d is %s and has given no sign of life for %v", pid, state, silence.Round(10*time.Millisecond))
}

// processState says in a word what a process does.
func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	switch {
	case strings.HasPrefix(rest, "R"):
		return "running"
	case strings.HasPrefix(rest, "T"), strings.HasPrefix(rest, "t"):
		return "stopped"
	case strings.HasPrefix(rest, "Z"), strings.HasPrefix(rest, "X"):
		return "dead"
	case strings.HasPrefix(rest, "D"):
		return "waiting for the kernel"
	}
	return "asleep"
}

// overdue declares failed whom this rank has waited for beyond the limit.
func (c *Comm) overdue(start time.Time) {
	w := c.group.world
	if w.limits.Wait == 0 || time.Since(start) < w.limits.Wait {
		return
	}
	for r, world := range c.group.worldRanks {
		if c.group.board.arrival(r).round.Load() < c.round {
			w.Abort(world, fmt.Errorf("it has not come to %s within %v", c.slot(c.rank).describe(c.Size()), w.limits.Wait))
			return
		}
	}
}
