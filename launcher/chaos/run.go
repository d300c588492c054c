//go:build linux

package chaos

// One run of the job: its processes, its progress and its events.

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
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
)

// run is a run under way. Its methods may be called from any goroutine.
type run struct {
	folder string // folder of the run
	notes  string // file in which processes log the faults that they inject into themselves
	begin  time.Time
	took   time.Duration
	code   int

	mu      sync.Mutex
	ranks   []int // the processes of the ranks
	spares  []int
	all     []int // all processes so far
	events  []spmd.Event
	first   time.Time // when the first step ended
	step    int
	stepped time.Time // when the last step was reported
	alarmed time.Time // when the last alarm was given
	ended   bool
	changed chan struct{} // closed at the next change
	alive   time.Time     // when something was last heard of the run
	line    []byte        // an incomplete line of output
	errOut  bytes.Buffer
}

// patience is the time without output or events after which a run counts as hung.
const patience = 2 * time.Minute

// start starts a run with a number of steps. arm, if not nil, returns the order that the process of
// a rank begins with. disturb may do anything to the run, and must return when its context ends.
func (s *session) start(ctx context.Context, steps int, arm func(rank int, generation uint32) *fault.Order, disturb func(context.Context, *run)) (*run, error) {
	s.runs++
	base := filepath.Join(s.folder, fmt.Sprintf("run-%d", s.runs))
	r := &run{folder: filepath.Join(base, "out"), notes: filepath.Join(base, "notes"), ranks: make([]int, s.Ranks), changed: make(chan struct{}), begin: time.Now(), alive: time.Now()}
	for _, folder := range []string{base, r.folder, r.notes} {
		if err := os.Mkdir(folder, 0o777); err != nil {
			return nil, err
		}
	}
	hooks := Hooks{Event: r.onEvent, Fault: func(rank int, generation uint32) string {
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

// silent returns the time since anything was heard of the run.
func (r *run) silent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.alive)
}

// stacks makes the processes print the stacks of their goroutines.
func (r *run) stacks() string {
	for _, pid := range append(slices.Clone(r.ranks), r.spares...) {
		syscall.Kill(pid, syscall.SIGCONT)
		syscall.Kill(pid, syscall.SIGQUIT)
	}
	time.Sleep(time.Second) // Give them time to print. The run is stuck, and nothing else would show the cause.
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errOut.String()
}

// update changes the known state of the run, and wakes those goroutines that wait for it.
func (r *run) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed, r.alive = make(chan struct{}), time.Now()
}

// await returns true when the condition holds, and false if the run or ctx ends first.
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

// onEvent receives the events of the launcher.
func (r *run) onEvent(e spmd.Event) {
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

// Write receives the output of the leading rank.
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

// lockedBuffer collects all other output of the launcher and the ranks.
type lockedBuffer struct{ *run }

func (b lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errOut.Write(text)
}

// process returns the current process of a rank.
func (r *run) process(rank int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranks[rank]
}

// judge records every violated requirement after a run.
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
		called := e.Step == int64(steps) && len(attacks) > 0 // a failure after the last step calls ranks back, and some had already ended
		if e.Kind == spmd.Detected && !called && !slices.ContainsFunc(attacks, func(a *attack) bool { return slices.Contains(a.processes, e.Process) }) {
			s.problem("%s: process %d of rank %d counted as failed, though no fault was injected into it: %s", r.folder, e.Process, e.Rank, e.Reason)
		}
	}
	for _, pid := range r.all {
		if syscall.Kill(pid, 0) == nil {
			s.problem("%s: process %d is still running", r.folder, pid)
		}
	}
	s.judgeSelf(r)
	if len(s.problems) > before {
		text := r.errOut.String()
		s.say("output of %s:\n%s", r.folder, text[max(0, len(text)-8000):])
		return
	}
	if err := os.RemoveAll(filepath.Dir(r.folder)); err != nil {
		s.problem("%v", err)
	}
}

// judgeSelf checks for leftovers of a run in this process.
func (s *session) judgeSelf(r *run) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		s.problem("%v", err)
	}
	if n := strings.Count(string(maps), "spmoe-heap"); n > 0 {
		s.problem("%s: its shared memory is still mapped, at %d places", r.folder, n)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.problem("%v", err)
	}
	if s.files == 0 {
		s.files = len(open)
	} else if len(open) > s.files {
		s.problem("%s: %d files are open, after the first run there were %d", r.folder, len(open), s.files)
	}
}

// References are the outcomes of undisturbed runs.
type References map[string]reference

type reference struct {
	run     *run
	outcome *outcome
}

// reference runs the job without faults, unless an earlier test has, and returns its outcome.
func (s *session) reference(ctx context.Context, steps int) (*run, *outcome, error) {
	key := fmt.Sprint(steps, s.Ranks, s.Spares, s.Model, s.more)
	if known, ok := s.References[key]; ok {
		return known.run, known.outcome, nil
	}
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
	s.say("undisturbed: %s in %v", report.Plural(steps, "step"), r.took.Round(time.Millisecond))
	s.judge(r, steps, nil, nil)
	if s.References != nil {
		s.References[key] = reference{r, &o}
	}
	return r, &o, nil
}
