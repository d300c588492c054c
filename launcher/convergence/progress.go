package convergence

// What a comparison says while it runs: a live line on a terminal, sparse lines otherwise, and a
// line for every run that is finished.

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/trainer"
)

// progress collects what runs report, which may go on at the same time.
type progress struct {
	mu     sync.Mutex
	w      io.Writer
	width  int // of the terminal; 0: none
	jobs   int
	left   map[string]int // steps that each recipe has to make
	pace   map[string]*pace
	done   int // runs
	runs   int
	shown  time.Time // the last live or sparse line
	isLive bool      // the live line is on the screen
}

// pace is what steps of a recipe have taken, with all that belongs to them.
type pace struct {
	steps int
	took  time.Duration
}

// The least time between two pictures of the live line, and between two sparse lines.
const (
	liveEvery   = 200 * time.Millisecond
	sparseEvery = 5 * time.Second
)

func newProgress(c *Comparison, tasks []task) *progress {
	p := &progress{w: c.Console, width: c.Width, jobs: c.Jobs, runs: len(tasks), shown: time.Now(), left: map[string]int{}, pace: map[string]*pace{}}
	for _, t := range tasks {
		p.left[t.recipe.Name] += t.cfg.Steps
		p.pace[t.recipe.Name] = new(pace)
	}
	return p
}

// reporter is the view of one run. It implements [trainer.Reporter].
type reporter struct {
	*progress
	task task
	at   int       // steps behind it
	last time.Time // when they were
}

func (p *progress) begin(t task) *reporter { return &reporter{progress: p, task: t, last: time.Now()} }

// Start implements [trainer.Reporter], as the other methods do.
func (r *reporter) Start(s trainer.Start) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = s.From
	r.left[r.task.recipe.Name] -= s.From
	if s.From > 0 {
		r.printf("%s: goes on after step %d\n", r.task, s.From)
	}
}

func (r *reporter) Step(s trainer.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	made, now := s.Step-r.at, time.Now()
	pace := r.pace[r.task.recipe.Name]
	pace.steps += made
	pace.took += now.Sub(r.last)
	r.left[r.task.recipe.Name] -= made
	before := r.at
	r.at, r.last = s.Step, now
	tenth := func(step int) int { return 10 * step / s.Steps }
	switch since := now.Sub(r.shown); {
	case r.width > 0 && since >= liveEvery:
		r.draw(s)
		r.shown = now
	case r.width == 0 && since >= sparseEvery && tenth(s.Step) > tenth(before) && s.Step < s.Steps:
		r.printf("%s: step %d of %d, loss %.4f, all done in %s\n", r.task, s.Step, s.Steps, s.Loss, r.eta())
		r.shown = now
	}
}

func (r *reporter) Eval(trainer.Eval)       {}
func (r *reporter) Saved(trainer.Saved)     {}
func (r *reporter) Alarm(a trainer.Alarm)   { r.printf("%s: ALARM: %s\n", r.task, a.Text) }
func (r *reporter) Profile(trainer.Profile) {}
func (r *reporter) Done(trainer.Done)       {}

// draw shows the live line.
func (r *reporter) draw(s trainer.Step) {
	r.isLive = true
	const cells = 12
	full := cells * s.Step / s.Steps
	line := fmt.Sprintf("[%d/%d] %s %s%s %d/%d  loss %.4f  ETA %s", r.done+1, r.runs, r.task, strings.Repeat("█", full),
		strings.Repeat("░", cells-full), s.Step, s.Steps, s.Loss, r.eta())
	if text := []rune(line); len(text) >= r.width {
		line = string(text[:r.width-1])
	}
	fmt.Fprintf(r.w, "\r\033[K%s", line)
}

// finished says what a run has come to; again, that it was finished before.
func (p *progress) finished(t task, run Run, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	note := ""
	if again {
		p.left[t.recipe.Name] -= t.cfg.Steps
		note = " (made before)"
	}
	if run.Diverged {
		note += " DIVERGED"
	}
	p.printf("[%d/%d] %s: training loss %.4f, held-out %.4f, %s tokens/s%s\n", p.done, p.runs, t, float64(run.Train), float64(run.HeldOut),
		report.Thousands(run.Speed), note)
}

// close takes the live line off the screen.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printf("")
}

func (p *progress) printf(format string, args ...any) {
	if p.isLive {
		fmt.Fprint(p.w, "\r\033[K")
		p.isLive = false
	}
	fmt.Fprintf(p.w, format, args...)
}

// eta says how long all that is left will take, at the pace of each recipe so far; one that has not
// run yet is taken to be as the others.
func (p *progress) eta() string {
	var all pace
	for _, one := range p.pace {
		all.steps, all.took = all.steps+one.steps, all.took+one.took
	}
	var left float64
	for name, steps := range p.left {
		one := p.pace[name]
		if one.steps == 0 {
			one = &all
		}
		left += float64(steps) * one.took.Seconds() / float64(max(one.steps, 1))
	}
	at := min(p.jobs, max(p.runs-p.done, 1))
	return report.Clock(time.Duration(left / float64(at) * float64(time.Second)))
}
