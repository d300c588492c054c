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
	begun    time.Time // start of the current generation
	// the step that all ranks must complete for the failure to be overcome; 0 if it is
	redo     int64
	failedAt int64 // newest stored step at the last failure
	tries    int   // failures without a step in between

	failed    *ExitError // for good
	late      <-chan time.Time
	cancelled bool // by the user
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
	l.failedAt = -1
	for !l.over() {
		select {
		case p := <-l.ends:
			l.ended(p)
		case <-look.C:
			l.checkLiveness()
		case <-interrupted:
			interrupted, l.cancelled = nil, true
			l.signal(syscall.SIGTERM)
		case <-l.late:
			l.kill()
		}
		if l.healing || l.redo > 0 {
			look.Reset(healTime)
		} else {
			look.Reset(lookTime)
		}
	}
	if l.failed == nil {
		return nil
	}
	return l.blame(l.failed)
}

// over reports whether all ranks' processes have ended.
func (l *launch) over() bool {
	return !slices.ContainsFunc(l.ranks, func(p *process) bool { return !p.ended })
}

func (l *launch) signal(s syscall.Signal) {
	for _, p := range append(slices.Clone(l.ranks), l.spares...) {
		if !p.ended {
			p.cmd.Process.Signal(s)
		}
	}
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
	case p.hung == "" && slices.Contains(l.Expected, code):
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

// code returns the exit code of a process that has ended.
func (p *process) code() int {
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// end describes how a process has ended.
func (p *process) end() string {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("its process %d was killed by signal %d (%v)", p.pid(), status.Signal(), status.Signal())
	}
	return fmt.Sprintf("its process %d ended with exit code %d", p.pid(), p.cmd.ProcessState.ExitCode())
}

// reason describes why a rank has failed.
func (l *launch) reason(p *process) string {
	text := p.end()
	if p.hung != "" {
		text = p.hung
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
	if l.Stacks { // they end by printing them; if they learned of the failure first, they would end without
		l.askForStacks()
		return
	}
	l.heap.Fail(e.Rank, heap.Launcher, reason)
	if f, ok := l.heap.Failure(); ok { // it may hang
		l.ranks[f.Rank].cmd.Process.Kill()
	}
	for r, p := range l.ranks {
		if s := l.heap.StateOf(r); s == heap.Parked || s == heap.Finished && l.heals() { // it waits for something that will not happen
			p.cmd.Process.Kill()
		}
	}
}

// askForStacks makes all ranks print the stacks of their goroutines, which ends them.
func (l *launch) askForStacks() {
	if l.asked {
		return
	}
	l.asked = true
	for _, p := range l.ranks {
		p.err.freeze()
		p.cmd.Process.Signal(syscall.SIGQUIT)
	}
}

// heal replaces the process of a rank, which has ended.
func (l *launch) heal(p *process) {
	reason, step := l.reason(p), l.kept()
	if !l.healing || p.watched == (watched{}) { // a process that failed before it made progress counts as another try
		if step > l.failedAt {
			l.failedAt, l.tries = step, 0
		}
		l.tries++
	}
	if !l.healing {
		l.healing, l.detected, l.redo = true, time.Now(), 0
	}
	l.emit(Event{Kind: Detected, Rank: p.rank, Process: p.pid(), Reason: reason})
	if p.hung != "" {
		l.emit(Event{Kind: Fenced, Rank: p.rank, Process: p.pid()})
	}
	if l.tries > l.Restarts {
		l.emit(Event{Kind: GaveUp, Rank: p.rank, Reason: reason})
		l.fail(&ExitError{Rank: p.rank, Code: DoNotRestart},
			fmt.Sprintf("%s; it is failure number %d without a step in between: fix what makes step %d fail, or leave its data out", reason, l.tries, step+1))
		return
	}
	l.heap.Fail(p.rank, heap.Launcher, reason)
	next, err := l.replace(p.rank)
	if err != nil {
		l.fail(&ExitError{Rank: p.rank, Code: 1}, fmt.Sprintf("%s, and no process could replace it: %v", reason, err))
		return
	}
	l.emit(Event{Kind: Replaced, Rank: p.rank, Process: next.pid()})
	l.printf("rank %d failed: %s; process %d replaces it", p.rank, reason, next.pid())
}

// replace calls a spare, or starts a new process, for the next generation.
func (l *launch) replace(rank int) (p *process, err error) {
	generation := l.heap.Generation() + 1
	for len(l.spares) > 0 {
		p, l.spares = l.spares[0], l.spares[1:]
		_, err := fmt.Fprintf(p.orders, orderFormat, rank, generation)
		p.orders.Close()
		if err != nil { // it has died
			p.cmd.Process.Kill()
			continue
		}
		if p.rank, l.ranks[rank] = rank, p; l.Bind {
			p.cores, err = bindProcess(p.pid(), rank, l.Ranks)
		}
		return p, err
	}
	if p, err = l.start(rank, generation); err == nil {
		l.ranks[rank] = p
	}
	return p, err
}

// checkLiveness checks for failures that no process reports.
func (l *launch) checkLiveness() {
	if l.failed != nil {
		return
	}
	if l.redo > 0 && l.kept() >= l.redo {
		l.emit(Event{Kind: Redone, Rank: -1, After: time.Since(l.detected)})
		l.redo = 0
		l.refill()
	}
	if l.healing && l.heap.AllParked() && !slices.ContainsFunc(l.ranks, func(p *process) bool { return p.ended }) {
		l.resume()
	}
	silence := l.Silence
	if silence == 0 {
		silence = DefaultSilence
	}
	declared, failed := l.heap.Failure()
	for r, p := range l.ranks {
		if p.ended || p.hung != "" {
			continue
		}
		why := p.hangs(l.heap, r, p.pid(), silence)
		if why == "" && failed && !l.healing && declared.Rank == r && declared.By != r {
			why = declared.Text // its peers have declared it
		}
		if why != "" {
			p.hung = why
			p.cmd.Process.Kill() // the end of the process triggers the rest
		}
	}
}

// resume lets all ranks continue.
func (l *launch) resume() {
	l.heap.Begin()
	l.healing, l.redo, l.begun = false, l.kept()+1, time.Now()
	after := time.Since(l.detected)
	l.emit(Event{Kind: Resumed, Rank: -1, After: after})
	l.printf("all ranks continue after step %d, %v after the failure was detected", max(l.redo-1, 0), after.Round(100*time.Microsecond))
}

// refill starts new spares in place of those that were called.
func (l *launch) refill() {
	for len(l.spares) < l.Spares {
		if err := l.startSpare(); err != nil {
			l.printf("no new spare could be started: %v", err)
			return
		}
		l.emit(Event{Kind: SpareReady, Rank: -1, Process: l.spares[len(l.spares)-1].pid()})
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
	if f, ok := l.heap.Failure(); ok && (e.Code != DoNotRestart || f.By == f.Rank) {
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
