package spmd

// The launcher's side of rank processes: it starts them, and leaves none behind.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"spmoe/collective"
	"spmoe/collective/heap"
	"spmoe/internal/fault"
)

// Run starts the ranks and waits for all of them. When ctx is cancelled, they are asked to stop and
// may end in their own time. If a rank fails and failures are healed, another process replaces it.
// Otherwise its peers get an error from their collectives, and ranks that have not ended some
// seconds later are killed. All ranks are killed if this process dies.
//
// Run returns a [*ExitError] if a rank failed for good, and ErrNotBegun if ctx was cancelled before
// the first step of a job whose failures are healed.
func (p *Processes) Run(ctx context.Context) error {
	vault := p.Vault
	if !p.heals() {
		vault = 0
	} else if ctx.Err() != nil {
		return ErrNotBegun
	}
	file, err := heap.Create(heap.Whole(p.Ranks), collective.ControlBytes(p.Ranks), p.Heap, vault)
	if err != nil {
		return err
	}
	defer file.Close()
	h, err := heap.Open(file)
	if err != nil {
		return err
	}
	defer h.Close()
	l := &launch{
		Processes: p, heap: h, file: file, ranks: make([]*process, p.Ranks), ends: make(chan *process, p.Ranks+p.Spares), starts: make(chan func()),
		memory: newMemoryKills(), fencing: usualFencing,
	}
	defer close(l.starts)
	go l.starter()
	defer l.reap()
	if err := l.startAll(); err != nil {
		return err
	}
	l.printf("%s", l.describe())
	return l.supervise(ctx)
}

// launch is a running job.
type launch struct {
	*Processes
	heap   *heap.Heap
	file   *os.File
	ranks  []*process
	spares []*process
	alive  int
	ends   chan *process
	starts chan func()
	out    sync.Mutex // protects both outputs if ranks share them

	memory  *memoryKills
	fencing fencing
	recovery
}

// process is the process of a rank, or a spare.
type process struct {
	rank   int // -1: a spare
	cmd    *exec.Cmd
	cores  []int    // that it is bound to
	err    *tail    // the end of its standard error
	orders *os.File // for a spare
	ended  bool

	generation uint32 // the first that it takes part in
	processWatch

	hung      string // the reason why it was killed
	killedAt  time.Time
	immortal  bool      // the job does not wait for its end
	memory    bool      // the kernel has killed it for memory
	replaceAt time.Time // it has ended, and another process replaces it then; zero: none does
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (l *launch) printf(format string, args ...any) {
	l.out.Lock()
	defer l.out.Unlock()
	fmt.Fprintf(l.Err, "launcher: "+format+"\n", args...)
}

// starter starts processes from a thread that lives as long as they do, because the kernel kills
// them when the thread that started them ends.
func (l *launch) starter() {
	runtime.LockOSThread()
	for start := range l.starts {
		start()
	}
}

func (l *launch) startAll() error {
	for r := range l.Ranks {
		p, err := l.start(r, 0)
		if err != nil {
			return fmt.Errorf("starting rank %d: %w", r, err)
		}
		l.ranks[r] = p
		l.emit(Event{Kind: Started, Rank: r, Process: p.pid()})
	}
	if !l.heals() {
		return nil
	}
	for range l.Spares {
		if err := l.startSpare(); err != nil {
			return fmt.Errorf("starting a spare: %w", err)
		}
		l.emit(Event{Kind: Started, Rank: -1, Process: l.spares[len(l.spares)-1].pid()})
	}
	return nil
}

func (l *launch) startSpare() error {
	p, err := l.start(-1, 0)
	if err == nil {
		l.spares = append(l.spares, p)
	}
	return err
}

// start starts the process of a rank, or a spare, which takes part from a generation on.
func (l *launch) start(rank int, generation uint32) (p *process, err error) {
	done := make(chan struct{})
	l.starts <- func() {
		p, err = l.spawn(rank, generation)
		close(done)
	}
	<-done
	return p, err
}

func (l *launch) spawn(rank int, generation uint32) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, l.Args...)
	cmd.Env = append(l.environment(rank, generation), rankVariable+"="+fmt.Sprintf(rankFormat, rank, os.Getpid(), runtime.GOMAXPROCS(0), generation, l.heals()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{rank: rank, cmd: cmd, generation: generation}
	var orders *os.File // a rank has none
	if rank < 0 {
		if orders, p.orders, err = os.Pipe(); err != nil {
			return nil, err
		}
		defer orders.Close()
	}
	cmd.ExtraFiles = []*os.File{l.file, orders, l.Text}
	out, errOut := &lines{w: l.Out, mu: &l.out}, &lines{w: l.Err, mu: &l.out}
	p.err = &tail{to: errOut}
	cmd.Stdout, cmd.Stderr = out, p.err
	if _, isFile := l.Out.(*os.File); isFile {
		cmd.Stdout = l.Out // the rank may use the width of the terminal
	}
	if l.Bind && rank >= 0 {
		restore, cores, err := bindThread(rank, l.Ranks)
		if err != nil {
			return nil, err
		}
		defer restore()
		p.cores = cores
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	offerToOOMKiller(p.pid(), os.Getpid())
	l.alive++
	go func() {
		cmd.Wait() // the process state has the result
		out.flush()
		errOut.flush()
		l.ends <- p
	}()
	return p, nil
}

// environment returns the environment of this process without fault settings, which only the job's
// Fault may set.
func (l *launch) environment(rank int, generation uint32) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, fault.Variable+"=") })
	if l.Fault != nil {
		if setting := l.Fault(rank, generation); setting != "" {
			env = append(env, fault.Variable+"="+setting)
		}
	}
	return env
}

// describe lists the ranks and their processes.
func (l *launch) describe() string {
	text := fmt.Sprintf("%d ranks are processes", l.Ranks)
	for r, p := range l.ranks {
		sep := ", "
		if r == 0 {
			sep = ": "
		}
		text += fmt.Sprintf("%s%d", sep, p.pid())
		if p.cores != nil {
			text += fmt.Sprintf(" on %v", p.cores)
		}
	}
	for i, p := range l.spares {
		sep := ", "
		if i == 0 {
			sep = "; spares: "
		}
		text += fmt.Sprintf("%s%d", sep, p.pid())
	}
	return text
}

// kill kills all remaining processes.
func (l *launch) kill() {
	for _, p := range append(l.ranks, l.spares...) {
		if p != nil {
			p.cmd.Process.Kill()
		}
	}
}

// reap kills all remaining processes and waits until they have ended, except those that cannot be
// killed.
func (l *launch) reap() {
	l.kill()
	immortal := 0
	for _, p := range l.ranks {
		if p != nil && p.immortal && !p.ended {
			immortal++
		}
	}
	for late := time.After(l.fencing.bound); l.alive > immortal; l.alive-- {
		select {
		case p := <-l.ends:
			if p.orders != nil {
				p.orders.Close()
			}
		case <-late:
			return
		}
	}
}

// bindThread binds this thread, and what it starts until restore is called, to rank r's share of
// the available processors.
func bindThread(r, ranks int) (restore func(), cores []int, err error) {
	all, mine, cores, err := shareOf(r, ranks)
	if err == nil {
		err = unix.SchedSetaffinity(0, &mine)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("binding to processors %v: %w", cores, err)
	}
	return func() { unix.SchedSetaffinity(0, &all) }, cores, nil
}

// bindProcess binds the threads of a process to rank r's share of the processors.
func bindProcess(pid, r, ranks int) (cores []int, err error) {
	_, mine, cores, err := shareOf(r, ranks)
	if err != nil {
		return nil, err
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		var thread int
		if _, err := fmt.Sscan(t.Name(), &thread); err == nil {
			unix.SchedSetaffinity(thread, &mine) // it may have ended
		}
	}
	return cores, err
}

// shareOf returns rank r's share of all processors that this thread may use.
func shareOf(r, ranks int) (all, mine unix.CPUSet, cores []int, err error) {
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return all, mine, nil, fmt.Errorf("reading the processors that may be used: %w", err)
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
	return all, mine, cores, nil
}
