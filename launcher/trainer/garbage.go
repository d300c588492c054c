package trainer

import (
	"runtime/debug"

	"spmoe/launcher/trainer/estimate"
)

// garbageBound is whether runs bound the garbage of Go's heap. The collector lets garbage grow to a
// share of all that is in use, by default as much again. Tensors are in that heap, so the share
// would be gigabytes. Collections are cheap all the same: tensors hold no pointers. Tests turn it
// off.
var garbageBound = true

// boundGarbage returns memory that is not in use to the system, for example that of reading the
// text, and bounds garbage until release. release returns the memory of the ranks, so that what
// follows a run, such as its report, does not add to it.
func boundGarbage() (release func()) {
	if !garbageBound {
		return func() {}
	}
	debug.FreeOSMemory()
	before := debug.SetGCPercent(estimate.GarbagePercent)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}
