package trainer

// A bound on the garbage of Go's heap while ranks run. The collector lets garbage grow to a share
// of all that is in use, by default as much again. Tensors are in that heap, so the share would be
// gigabytes. Collections are cheap all the same: tensors hold no pointers.

import (
	"runtime/debug"
	"sync"

	"spmoe/launcher/trainer/estimate"
)

// garbageBound counts the runs of this process that need the bound, because the collector has one
// setting for all.
type garbageBound struct {
	mu     sync.Mutex
	runs   int
	before int // the setting without runs
}

var garbage garbageBound

// hold returns memory that is not in use to the system, for example that of reading the text, and
// bounds garbage until release, if no other run does already. release returns the memory of the
// ranks, so that what follows a run, such as its report, does not add to it.
func (g *garbageBound) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs++; g.runs == 1 {
		debug.FreeOSMemory()
		g.before = debug.SetGCPercent(estimate.GarbagePercent)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.runs--; g.runs == 0 {
			debug.SetGCPercent(g.before)
			debug.FreeOSMemory()
		}
	}
}
