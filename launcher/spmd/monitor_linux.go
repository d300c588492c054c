package spmd

// The monitor finds hung ranks. A rank's own computation raises its progress counter at the end of
// each kernel. A rank without progress is judged by the processor time that it used meanwhile, not
// by the clock, because on a busy machine it may not have run at all.

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"spmoe/collective/heap"
)

const (
	// patience is the number of its longest work intervals that a rank may compute without
	// progress.
	patience = 5
	// leastWork applies to ranks that have not shown the length of their intervals yet.
	leastWork = time.Second
	// sleepTime is how long a rank may sleep outside a collective: it may be writing to a slow
	// disk.
	sleepTime = 60 * time.Second
)

// processWatch is the monitor's record of a rank's process.
type processWatch struct {
	work    uint64        // its progress when it was last seen to rise
	since   time.Time     // the time of that
	used    time.Duration // processor time used by then
	longest time.Duration // longest processor time between two rises
	stopped time.Time     // when it was first seen stopped; zero if it runs
	stuck   time.Time     // when it was first seen stuck in the kernel; zero if it is not
	ran     time.Duration // processor time used when it was last seen
}

// hangs describes what is wrong with a rank; empty if nothing is. silence is how long it may be
// stopped, asleep how long it may sleep outside a collective.
func (w *processWatch) hangs(h *heap.Heap, rank, pid int, silence, asleep time.Duration) string {
	state, used, ok := processState(pid)
	if !ok {
		return ""
	}
	now := time.Now()
	if state != 'T' && state != 't' {
		w.stopped = time.Time{}
	} else if w.stopped.IsZero() {
		w.stopped = now
	} else if gone := now.Sub(w.stopped); gone >= silence {
		return fmt.Sprintf("its process %d has been stopped for %v", pid, gone.Round(10*time.Millisecond))
	}
	if state != 'D' || used != w.ran {
		w.stuck = time.Time{}
	} else if w.stuck.IsZero() {
		w.stuck = now
	} else if long := now.Sub(w.stuck); long >= asleep {
		return fmt.Sprintf("its process %d has been stuck in the kernel (state D) for %v", pid, long.Round(10*time.Millisecond))
	}
	w.ran = used
	if work := h.Progress(rank).Load(); w.since.IsZero() || work != w.work || waits(h, rank) {
		if w.work > 0 {
			w.longest = max(w.longest, used-w.used)
		}
		w.work, w.since, w.used = work, now, used
		return ""
	}
	if busy := used - w.used; busy >= max(leastWork, patience*w.longest) {
		return fmt.Sprintf("its process %d has computed for %v without making progress", pid, busy.Round(10*time.Millisecond))
	}
	if still := now.Sub(w.since); used == w.used && still >= asleep {
		return fmt.Sprintf("its process %d has been asleep for %v outside a collective", pid, still.Round(time.Second))
	}
	return ""
}

// waits reports whether a rank waits for others, which may take any time.
func waits(h *heap.Heap, rank int) bool {
	s := h.StateOf(rank)
	return s == heap.Absent || s == heap.Parked || h.Waiting(rank) > 0
}

// tick is the unit of processor time that Linux reports.
const tick = 10 * time.Millisecond

// processState returns the state letter of a process and the processor time that it has used.
func processState(pid int) (state byte, used time.Duration, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name, which may hold any character
	if len(fields) < 13 {
		return 0, 0, false
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return fields[0][0], time.Duration(user+system) * tick, true
}
