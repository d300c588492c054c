package spmd

// The launcher's side of ranks that are processes: it starts them, hears of their ends, tells the others, and leaves nobody behind.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"spmoe/collective"
	"spmoe/collective/heap"
)

// Run starts the ranks and waits for all of them. When ctx ends they get SIGTERM, and may end as they see fit. When one fails, the
// others learn of it from their collectives; who has not ended some seconds later is killed. So are all if this process dies.
//
// It returns a [*ExitError] if a rank failed.
func (p *Processes) Run(ctx context.Context) error {
	file, err := heap.Create(p.Ranks, collective.ControlBytes(p.Ranks), p.Heap)
	if err != nil {
		return err
	}
	defer file.Close()
	h, err := heap.Open(file)
	if err != nil {
		return err
	}
	defer h.Close()
	l := &launch{Processes: p, heap: h, file: file, ends: make(chan end, p.Ranks)}
	started := make(chan error)
	go l.start(started)
	if err := <-started; err != nil {
		l.kill()
		l.wait(len(l.ranks))
		return err
	}
	defer close(l.done)
	l.out.Lock()
	fmt.Fprintln(p.Err, l.describe())
	l.out.Unlock()
	return l.supervise(ctx)
}

type launch struct {
	*Processes
	heap  *heap.Heap
	file  *os.File
	ranks []*rankProcess
	ends  chan end
	done  chan struct{} // closed when the thread that has started the ranks may end
	out   sync.Mutex    // of both outputs, when ranks share them
	asked bool          // for stacks, with Stacks
}

type rankProcess struct {
	cmd   *exec.Cmd
	cores []int // that it is bound to
	err   *tail // what it has said last on its standard error
}

// end is how a rank's process has ended.
type end struct {
	rank  int
	state *os.ProcessState
}

// start starts all ranks from a thread that lives as long as they do: the kernel kills them when it ends.
func (l *launch) start(started chan<- error) {
	runtime.LockOSThread()
	l.done = make(chan struct{})
	for r := range l.Ranks {
		if err := l.startRank(r); err != nil {
			started <- fmt.Errorf("starting rank %d: %w", r, err)
			return
		}
	}
	started <- nil
	<-l.done
}

func (l *launch) startRank(r int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, l.Args...)
	cmd.Env = append(os.Environ(), rankVariable+"="+fmt.Sprintf(rankFormat, r, os.Getpid(), runtime.GOMAXPROCS(0)))
	cmd.ExtraFiles = []*os.File{l.file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &rankProcess{cmd: cmd}
	prefix := ""
	if l.Tag {
		prefix = fmt.Sprintf("[%d] ", r)
	}
	out, errOut := &lines{w: l.Out, mu: &l.out, prefix: prefix}, &lines{w: l.Err, mu: &l.out, prefix: prefix}
	p.err = &tail{to: errOut}
	cmd.Stdout, cmd.Stderr = out, p.err
	if _, isFile := l.Out.(*os.File); isFile && !l.Tag {
		cmd.Stdout = l.Out // of which the rank may want to know the width
	}
	if l.Bind {
		restore, cores, err := bindThread(r, l.Ranks)
		if err != nil {
			return err
		}
		defer restore()
		p.cores = cores
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.ranks = append(l.ranks, p)
	go func() {
		cmd.Wait() // the state says all
		out.flush()
		errOut.flush()
		l.ends <- end{r, cmd.ProcessState}
	}()
	return nil
}

// describe says who runs where.
func (l *launch) describe() string {
	text := fmt.Sprintf("launcher: %d ranks are processes", l.Ranks)
	for r, p := range l.ranks {
		sep := ", "
		if r == 0 {
			sep = ": "
		}
		text += fmt.Sprintf("%s%d", sep, p.cmd.Process.Pid)
		if p.cores != nil {
			text += fmt.Sprintf(" on %v", p.cores)
		}
	}
	return text
}

// graceTime is for ranks that have learned of a failure to end by themselves.
const graceTime = 5 * time.Second

// supervise hears of the ranks' ends.
func (l *launch) supervise(ctx context.Context) error {
	interrupted := ctx.Done()
	var late <-chan time.Time
	var failed *ExitError
	for left := l.Ranks; left > 0; {
		select {
		case e := <-l.ends:
			left--
			if err := l.ended(e); err != nil && failed == nil {
				failed, late = err, time.After(graceTime)
				if rank, _, ok := l.heap.Failure(); ok && !l.Stacks { // it may hang
					l.ranks[rank].cmd.Process.Kill()
				}
			}
		case <-interrupted:
			interrupted = nil
			for _, p := range l.ranks {
				p.cmd.Process.Signal(syscall.SIGTERM)
			}
		case <-late:
			l.kill()
		}
	}
	if failed == nil {
		return nil
	}
	return l.blame(failed)
}

// askForStacks lets all ranks print the stacks of their goroutines. They end by it.
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

// ended tells the other ranks of a rank that has failed without saying so.
func (l *launch) ended(e end) *ExitError {
	if e.state.Success() {
		return nil
	}
	text, code := fmt.Sprintf("its process %d ended with exit code %d", e.state.Pid(), e.state.ExitCode()), e.state.ExitCode()
	if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		text = fmt.Sprintf("its process %d was killed by signal %d (%v)", e.state.Pid(), status.Signal(), status.Signal())
		code = 128 + int(status.Signal())
	}
	if slices.Contains(l.Expected, code) {
		return &ExitError{Rank: e.rank, Code: code}
	}
	if step := l.heap.StepOf(e.rank); step > 0 {
		text += fmt.Sprintf(" at step %d", step)
	}
	if l.Stacks { // they end by printing them: nobody must learn of the failure and end before
		l.askForStacks()
	} else {
		l.heap.Fail(e.rank, text)
	}
	return &ExitError{Rank: e.rank, Code: code, Reason: text}
}

// blame names the rank that failed first, which need not be the one that ended first.
func (l *launch) blame(e *ExitError) error {
	if rank, reason, ok := l.heap.Failure(); ok {
		if e.Reason = reason; rank != e.Rank {
			e.Rank = rank
			if state := l.ranks[rank].cmd.ProcessState; state != nil && state.ExitCode() > 0 {
				e.Code = state.ExitCode()
			}
		}
	}
	e.LastLines = l.ranks[e.Rank].err.lines()
	return e
}

func (l *launch) kill() {
	for _, p := range l.ranks {
		p.cmd.Process.Kill()
	}
}

func (l *launch) wait(n int) {
	for range n {
		<-l.ends
	}
}

// bindThread binds this thread, and what it starts until restore, to rank r's share of the processors it may use.
func bindThread(r, ranks int) (restore func(), cores []int, err error) {
	var all, mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, nil, fmt.Errorf("reading the processors that may be used: %w", err)
	}
	var usable []int
	for c := range 64 * len(all) {
		if all.IsSet(c) {
			usable = append(usable, c)
		}
	}
	share := max(1, len(usable)/ranks)
	for i := range share {
		c := usable[(r*share+i)%len(usable)]
		mine.Set(c)
		cores = append(cores, c)
	}
	if err := unix.SchedSetaffinity(0, &mine); err != nil {
		return nil, nil, fmt.Errorf("binding to processors %v: %w", cores, err)
	}
	return func() { unix.SchedSetaffinity(0, &all) }, cores, nil
}
