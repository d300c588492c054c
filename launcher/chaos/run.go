//go:build linux

package chaos

// One run of the job: who its processes are, how far it is, and what it leaves behind.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/spmd"
)

// run is a run under way. Its methods may be called from any goroutine.
type run struct {
	folder string // of the run
	notes  string // where its processes write down what they do to themselves
	begin  time.Time
	took   time.Duration
	code   int

	mu      sync.Mutex
	ranks   []int // their processes
	spares  []int
	all     []int // processes there ever were
	events  []spmd.Event
	first   time.Time // when the first step was made
	step    int
	stepped time.Time // when that was heard of
	alarmed time.Time // when an alarm was given last
	ended   bool
	changed chan struct{} // closed when something has
	alive   time.Time     // when something was heard last
	line    []byte        // of output, without its end
	errOut  bytes.Buffer
}

// patience is how long a run may say nothing before it is taken to hang.
const patience = 2 * time.Minute

// start makes a run of so many steps. arm is the order that the process of a rank begins with, if
// it is not nil; disturb may do to the run what it likes, and sees that it has ended by the end of
// its context.
func (s *session) start(ctx context.Context, steps int, arm func(rank int, generation uint32) *fault.Order, disturb func(context.Context, *run)) (*run, error) {
	s.runs++
	base := filepath.Join(s.folder, fmt.Sprintf("run-%d", s.runs))
	r := &run{folder: filepath.Join(base, "out"), notes: filepath.Join(base, "notes"), ranks: make([]int, s.Ranks), changed: make(chan struct{}), begin: time.Now(), alive: time.Now()}
	for _, folder := range []string{base, r.folder, r.notes} {
		if err := os.Mkdir(folder, 0o777); err != nil {
			return nil, err
		}
	}
	hooks := Hooks{Event: r.hear, Fault: func(rank int, generation uint32) string {
		var order *fault.Order
		if arm != nil {
			order = arm(rank, generation)
		}
		return fault.Setting(order, r.notes)
	}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, disturbed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.code = s.Launch(ctx, s.command(r.folder, steps), hooks, r, lockedBuffer{r})
		r.took = time.Since(r.begin)
		r.update(func() { r.ended = true })
	}()
	go func() {
		defer close(disturbed)
		if disturb != nil {
			disturb(ctx, r)
		}
	}()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-done:
			cancel()
			<-disturbed
			if r.code == 130 {
				return nil, context.Canceled // by the user
			}
			return r, nil
		case <-look.C:
			if silent := r.silent(); silent > patience {
				return nil, fmt.Errorf("run %s hangs: nothing has happened for %v; its processes: %v; what they say:\n%s", r.folder, silent, r.all, r.stacks())
			}
		}
	}
}

// silent is how long nothing was heard of the run.
func (r *run) silent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.alive)
}

// stacks lets the processes print what they are at.
func (r *run) stacks() string {
	for _, pid := range append(slices.Clone(r.ranks), r.spares...) {
		syscall.Kill(pid, syscall.SIGCONT)
		syscall.Kill(pid, syscall.SIGQUIT)
	}
	time.Sleep(time.Second) // for them to have printed: the run is stuck, and nothing else would say so
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errOut.String()
}

// update changes what is known of the run, and wakes who waits for it.
func (r *run) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed, r.alive = make(chan struct{}), time.Now()
}

// await returns true when the condition holds, false when the run has ended before or ctx has.
func (r *run) await(ctx context.Context, condition func() bool) bool {
	for {
		r.mu.Lock()
		holds, ended, changed := condition(), r.ended, r.changed
		r.mu.Unlock()
		if holds || ended {
			return holds
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// hear is told of events by the launcher.
func (r *run) hear(e spmd.Event) {
	r.update(func() {
		r.events = append(r.events, e)
		switch e.Kind {
		case spmd.Started, spmd.SpareReady:
			if e.Rank < 0 {
				r.spares = append(r.spares, e.Process)
			} else {
				r.ranks[e.Rank] = e.Process
			}
			r.all = append(r.all, e.Process)
		case spmd.SpareLost:
			r.spares = slices.DeleteFunc(r.spares, func(pid int) bool { return pid == e.Process })
		case spmd.Replaced:
			r.spares = slices.DeleteFunc(r.spares, func(pid int) bool { return pid == e.Process })
			r.ranks[e.Rank] = e.Process
			r.all = append(r.all, e.Process)
		}
	})
}

// Write hears what the leading rank prints.
func (r *run) Write(b []byte) (int, error) {
	r.line = append(r.line, b...)
	for {
		line, rest, ok := bytes.Cut(r.line, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		var said struct {
			Event string
			Step  int
		}
		if json.Unmarshal(line, &said) == nil && said.Event == "step" {
			r.update(func() {
				if r.step, r.stepped = said.Step, time.Now(); r.first.IsZero() {
					r.first = r.stepped
				}
			})
		}
		if said.Event == "alarm" {
			r.update(func() { r.alarmed = time.Now() })
			lockedBuffer{r}.Write(append(line, '\n'))
		}
		r.line = rest
	}
}

// lockedBuffer keeps what the launcher and the ranks say besides.
type lockedBuffer struct{ *run }

func (b lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errOut.Write(text)
}

// process is that of a rank, now.
func (r *run) process(rank int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranks[rank]
}

// now is the step that was made last.
func (r *run) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// judge notes all that is not as it must be after a run.
func (s *session) judge(r *run, steps int, want *outcome, attacks []*attack) {
	before := len(s.problems)
	if r.code != 0 {
		s.problem("%s: exit code %d", r.folder, r.code)
	} else if has, err := outcomeOf(r.folder, steps); err != nil {
		s.problem("%s: %v", r.folder, err)
	} else if want != nil {
		for _, d := range has.differences(want) {
			s.problem("%s: %s", r.folder, d)
		}
	}
	if n := strings.Count(r.errOut.String(), `"text":"after saving the checkpoint`); n > 0 {
		s.problem("%s: %d alarms about checkpoints", r.folder, n)
	}
	for _, e := range r.events {
		called := e.Step == int64(steps) && len(attacks) > 0 // back by a failure after the last step, from which some had left already
		if e.Kind == spmd.Detected && !called && !slices.ContainsFunc(attacks, func(a *attack) bool { return slices.Contains(a.processes, e.Process) }) {
			s.problem("%s: process %d of rank %d was taken to have failed, which nobody had harmed: %s", r.folder, e.Process, e.Rank, e.Reason)
		}
	}
	for _, pid := range r.all {
		if syscall.Kill(pid, 0) == nil {
			s.problem("%s: process %d is left", r.folder, pid)
		}
	}
	s.judgeSelf(r)
	if len(s.problems) > before {
		text := r.errOut.String()
		s.say("what %s has said:\n%s", r.folder, text[max(0, len(text)-8000):])
		return
	}
	if err := os.RemoveAll(filepath.Dir(r.folder)); err != nil {
		s.problem("%v", err)
	}
}

// judgeSelf looks for what a run has left in this process.
func (s *session) judgeSelf(r *run) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		s.problem("%v", err)
	}
	if n := strings.Count(string(maps), "spmoe-heap"); n > 0 {
		s.problem("%s: its shared memory is still mapped, in %d parts", r.folder, n)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.problem("%v", err)
	}
	if s.files == 0 {
		s.files = len(open)
	} else if len(open) > s.files {
		s.problem("%s: %d files are open, %d were after the first run", r.folder, len(open), s.files)
	}
}

// reference is what the job comes to if nothing happens.
func (s *session) reference(ctx context.Context, steps int) (*run, *outcome, error) {
	r, err := s.start(ctx, steps, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if r.code != 0 {
		return nil, nil, fmt.Errorf("the undisturbed run has ended with exit code %d: %s", r.code, r.errOut.String())
	}
	o, err := outcomeOf(r.folder, steps)
	if err != nil {
		return nil, nil, err
	}
	s.say("undisturbed: %d steps in %v", steps, r.took.Round(time.Millisecond))
	s.judge(r, steps, nil, nil)
	return r, &o, nil
}
