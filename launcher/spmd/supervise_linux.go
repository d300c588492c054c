package spmd

// Supervision: the launcher notices ranks that die, finds ranks that hang, and replaces them.
//
// A failure proceeds as follows. It is declared in the heap, so that every wait of the survivors
// ends; they park. A hung process is killed, and its memory is not used again before it has ended.
// A spare or a new process becomes the lost rank, and parks too. When all ranks are parked, the
// launcher begins the next generation. The ranks create new communicators and continue from the
// newest step that all vaults hold, that is, they repeat the interrupted step.

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"spmoe/collective/heap"
)

// recovery is the launcher's state while it handles a failure.
type recovery struct {
	healing  bool
	detected time.Time
	// the step that all ranks must complete for the failure to be overcome; 0 if it is
	redo  int64
	count failures

	failed   *ExitError // for good
	gaveUp   bool       // failed says why
	notBegun bool       // the job was stopped before its first step
	late     <-chan time.Time
	killed   bool // all ranks, after that time
}

const (
	// graceTime is the time for ranks to end on their own after they have learned of a failure.
	graceTime = 5 * time.Second
	lookTime  = 20 * time.Millisecond
	// healTime replaces lookTime while a failure is handled.
	healTime = 500 * time.Microsecond
)

// supervise returns when every rank's process has ended.
func (l *launch) supervise(ctx context.Context) error {
	interrupted := ctx.Done()
	look := time.NewTicker(lookTime)
	defer look.Stop()
	l.count.at = -1
	for !l.over() {
		select {
		case p := <-l.ends:
			l.ended(p)
		case <-look.C:
			l.checkLiveness()
		case <-interrupted:
			interrupted = nil
			l.stop(SignalOf(ctx))
		case <-l.late:
			l.endLate()
		}
		if l.healing || l.redo > 0 {
			look.Reset(healTime)
		} else {
			look.Reset(lookTime)
		}
	}
	switch {
	case l.notBegun:
		return ErrNotBegun
	case l.failed == nil:
		return nil
	}
	return l.blame(l.failed)
}

// over reports whether all ranks' processes have ended, and none will be replaced.
func (l *launch) over() bool {
	return !slices.ContainsFunc(l.ranks, func(p *process) bool {
		return !p.ended && !p.immortal || l.failed == nil && !p.replaceAt.IsZero()
	})
}

// stop asks all ranks to stop after their step, also those that start later. If no rank has begun a
// step, the state is that of the beginning, and the job ends at once.
func (l *launch) stop(s syscall.Signal) {
	l.heap.Stop(uint32(s))
	if l.failed != nil || !l.heals() || l.begun() {
		return
	}
	l.notBegun, l.failed = true, &ExitError{Code: 128 + int(s)}
	l.endLate()
}

// endLate kills the ranks that have not ended in time. If the kernel does not end them either, the
// job no longer waits for them.
func (l *launch) endLate() {
	if !l.killed {
		l.killed, l.late = true, time.After(l.fencing.bound)
		l.kill()
		return
	}
	for _, p := range l.ranks {
		if !p.ended && !p.immortal {
			p.immortal = true
			l.printf("process %d of rank %d was killed and has not ended: it is left behind", p.pid(), p.rank)
		}
	}
}

// begun reports whether a rank has begun a step.
func (l *launch) begun() bool {
	for r := range l.ranks {
		if l.heap.StepOf(r) > 0 {
			return true
		}
	}
	return false
}

// ended handles the end of a process.
func (l *launch) ended(p *process) {
	l.alive--
	p.ended = true
	if p.rank < 0 {
		l.spares = slices.DeleteFunc(l.spares, func(s *process) bool { return s == p })
		p.orders.Close()
		l.emit(Event{Kind: SpareLost, Rank: -1, Process: p.pid(), Reason: p.end()})
		return
	}
	code := p.code()
	switch declared, ok := l.heap.Failure(); {
	case l.failed != nil, code == 0 && !l.heals() && l.heap.StateOf(p.rank) == heap.Finished:
	case p.hung == "" && p.signal() == 0 && slices.Contains(l.Expected, code):
		l.fail(&ExitError{Rank: p.rank, Code: code}, p.end())
	case (code == 0 || !ok) && l.heap.StateOf(p.rank) == heap.Finished && l.heap.AllFinished(): // its work was done: it is not a failure
		// the others may be waiting for exactly this, and it may have died before it rang
		l.heap.RingAll()
	case !l.heals(), ok && declared.Rank == p.rank && declared.By == p.rank: // it has given up on its own
		l.fail(&ExitError{Rank: p.rank, Code: code}, l.reason(p))
	default:
		l.heal(p)
	}
}

// signal returns the signal that killed the process, or 0.
func (p *process) signal() syscall.Signal {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// code returns the exit code of a process that has ended.
func (p *process) code() int {
	if s := p.signal(); s != 0 {
		return 128 + int(s)
	}
	return p.cmd.ProcessState.ExitCode()
}

// end describes how a process has ended.
func (p *process) end() string {
	if s := p.signal(); s != 0 {
		return fmt.Sprintf("its process %d was killed by signal %d (%v)", p.pid(), s, s)
	}
	return fmt.Sprintf("its process %d ended with exit code %d", p.pid(), p.cmd.ProcessState.ExitCode())
}

// reason describes why a rank has failed.
func (l *launch) reason(p *process) string {
	text := p.end()
	switch {
	case p.hung != "":
		text = p.hung
	case p.memory:
		text += ", probably by the kernel because memory ran out"
	}
	if step := l.heap.StepOf(p.rank); step > 0 {
		text += fmt.Sprintf(" at step %d", step)
	}
	return text
}

// fail ends the job: the other ranks are told, and get some time to end on their own.
func (l *launch) fail(e *ExitError, reason string) {
	l.failed, l.late, l.healing, l.redo = e, time.After(graceTime), false, 0
	if slices.Contains(l.Expected, e.Code) {
		return
	}
	e.Reason = reason
	l.heap.Fail(e.Rank, heap.Launcher, reason)
	if f, ok := l.heap.Failure(); ok { // it may hang
		l.ranks[f.Rank].cmd.Process.Kill()
	}
	l.killWaiting()
}

// killWaiting kills the ranks that wait for something that will not happen, because the job has
// failed.
func (l *launch) killWaiting() {
	if l.failed == nil || l.failed.Reason == "" {
		return
	}
	for r, p := range l.ranks {
		if s := l.heap.StateOf(r); s == heap.Parked || s == heap.Finished && l.heals() {
			p.cmd.Process.Kill()
		}
	}
}

// kept returns the newest step that all ranks have completed, -1 if there is none.
func (l *launch) kept() int64 {
	step, ok := l.heap.Kept()
	if !ok {
		return -1
	}
	return step
}

func (l *launch) emit(e Event) {
	if l.Events == nil {
		return
	}
	e.Time, e.Step, e.Generation = time.Now(), l.kept(), l.heap.Generation()
	l.Events(e)
}

// blame names the rank that failed first, which may not be the one that ended first.
func (l *launch) blame(e *ExitError) error {
	if f, ok := l.heap.Failure(); ok && (!l.gaveUp || f.By == f.Rank) {
		if e.Reason = f.Text; f.Rank != e.Rank {
			e.Rank = f.Rank
			if state := l.ranks[f.Rank].cmd.ProcessState; state != nil && state.ExitCode() > 0 {
				e.Code = state.ExitCode()
			}
		}
	}
	e.LastLines = l.ranks[e.Rank].err.lines()
	return e
}
