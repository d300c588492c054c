package spmd

// Liveness: the launcher looks for ranks that hang, and waits until a process that it has killed is
// gone.

import (
	"fmt"
	"slices"
	"time"
)

// fencing are the times of the fence around hung processes.
type fencing struct {
	asleep time.Duration // outside a collective, or in the kernel, after which it counts as hung
	bound  time.Duration // since it was killed, after which the job ends
}

// usualFencing allows for slow disks: they may hold a process for some time.
var usualFencing = fencing{asleep: sleepTime, bound: time.Minute}

// checkLiveness checks for failures that no process reports, and continues what was begun.
func (l *launch) checkLiveness() {
	if l.failed != nil {
		l.killWaiting()
		return
	}
	if l.redo > 0 && l.kept() >= l.redo {
		l.emit(Event{Kind: Redone, Rank: -1, After: time.Since(l.detected)})
		l.redo = 0
		l.refill()
	}
	l.replaceDue()
	if l.healing && l.heap.AllParked() && !slices.ContainsFunc(l.ranks, func(p *process) bool { return p.ended }) {
		l.resume()
	}
	declared, failed := l.heap.Failure()
	for r, p := range l.ranks {
		switch {
		case p.ended:
		case p.hung != "":
			l.checkFence(p)
		default:
			why := p.hangs(l.heap, r, p.pid(), l.silence(), l.fencing.asleep)
			if why == "" && failed && !l.healing && declared.Rank == r && declared.By != r {
				why = declared.Text // its peers have declared it
			}
			if why == "" {
				continue
			}
			p.hung, p.killedAt = why, time.Now()
			p.cmd.Process.Kill() // the end of the process triggers the rest
		}
	}
}

// silence returns the time that a rank may be stopped.
func (l *launch) silence() time.Duration {
	if l.Silence == 0 {
		return DefaultSilence
	}
	return l.Silence
}

// checkFence waits for the end of a process that was killed. Its memory must not be used again
// before. If the kernel does not end it, the job ends.
func (l *launch) checkFence(p *process) {
	if time.Since(p.killedAt) < l.fencing.bound {
		return
	}
	state, _, _ := processState(p.pid())
	why := fmt.Sprintf("%s; it was killed and has not ended (state %c)", p.hung, state)
	p.immortal, l.gaveUp = true, true
	l.emit(Event{Kind: GaveUp, Rank: p.rank, Process: p.pid(), Reason: why})
	l.fail(&ExitError{Rank: p.rank, Code: 1}, why+": find out what holds it in the kernel (a disk, a frozen cgroup), then repeat the command")
}
