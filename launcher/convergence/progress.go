package convergence

// Progress of a comparison on the console: a live line on a terminal, occasional lines otherwise,
// and one line per finished run.

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/trainer/events"
)

// progress collects the reports of runs, which may run concurrently.
type progress struct {
	mu     sync.Mutex
	w      io.Writer
	width  int // of the terminal; 0: none
	jobs   int
	left   int           // remaining steps of the announced runs
	steps  int           // made by this command
	took   time.Duration // by all runs for these steps, evaluations and saves included
	done   int           // finished runs
	runs   int           // announced
	arms   int           // runs per seed
	seeds  int           // at most
	shown  time.Time     // when the last line was printed
	isLive bool          // the live line is on the screen
}

// The shortest time between two updates of the live line, and between two occasional lines.
const (
	liveEvery       = 200 * time.Millisecond
	occasionalEvery = 5 * time.Second
)

func newProgress(c *Comparison) *progress {
	return &progress{w: c.Console, width: c.Width, jobs: c.Jobs, arms: len(c.Recipes), seeds: c.Design.Seeds(), shown: time.Now()}
}

// add announces further runs.
func (p *progress) add(tasks []task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs += len(tasks)
	for _, t := range tasks {
		p.left += t.cfg.Steps
	}
}

// look prints the verdicts of a look before the last one.
func (p *progress) look(number int, r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, arm := range r.Arms[1:] {
		if seeds := len(r.Setup.Seeds); len(arm.Runs) == seeds {
			p.printf("look %d of %d, after %s: %s %s%s\n", number, len(r.Looks), report.Plural(seeds, "seed"), arm.Name, arm.Verdict, margins(arm))
		}
	}
}

// margins says how small a margin the losses of an arm would have passed.
func margins(arm Arm) string {
	if arm.Train == nil || arm.HeldOut == nil {
		return ""
	}
	return fmt.Sprintf(", within %.2f %%", 100*max(arm.Train.Smallest, arm.HeldOut.Smallest))
}

// reporter receives the reports of one run. It implements [trainer.Reporter].
type reporter struct {
	*progress
	task task
	at   int       // finished steps
	last time.Time // when the last of them ended
}

func (p *progress) begin(t task) *reporter { return &reporter{progress: p, task: t, last: time.Now()} }

// Start implements [trainer.Reporter], like the following methods.
func (r *reporter) Start(s events.Start) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = s.From
	r.left -= s.From
	if s.From > 0 {
		r.printf("%s: resumes after step %d\n", r.task, s.From)
	}
}

func (r *reporter) Step(s events.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, now := r.at, time.Now()
	r.steps += s.Step - before
	r.left -= s.Step - before
	r.took += now.Sub(r.last)
	r.at, r.last = s.Step, now
	tenth := func(step int) int { return 10 * step / s.Steps }
	switch since := now.Sub(r.shown); {
	case r.width > 0 && since >= liveEvery:
		r.draw(s)
		r.shown = now
	case r.width == 0 && since >= occasionalEvery && tenth(s.Step) > tenth(before) && s.Step < s.Steps:
		r.printf("%s: step %d of %d, loss %.4f, ETA of the next verdict %s\n", r.task, s.Step, s.Steps, s.Loss, r.eta())
		r.shown = now
	}
}

func (r *reporter) Eval(events.Eval) {}

func (r *reporter) Saved(events.Saved) {}

func (r *reporter) Sample(events.Sample) {}

func (r *reporter) Alarm(a events.Alarm) { r.printf("%s: ALARM: %s\n", r.task, a.Text) }

func (r *reporter) Stopping(s events.Stopping) { r.printf("%s: %s\n", r.task, s) }

func (r *reporter) Profile(events.Profile) {}

func (r *reporter) Done(events.Done) {}

// draw prints the live line.
func (r *reporter) draw(s events.Step) {
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

// finished prints the outcome of a run. wasFinished marks a run that an earlier command trained.
func (p *progress) finished(t task, run Run, wasFinished bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	note := ""
	if wasFinished {
		p.left -= t.cfg.Steps
		note = " (from an earlier command)"
	}
	if run.Diverged {
		note += " DIVERGED"
	}
	p.printf("[%d/%d] %s: training loss %.4f, validation loss %.4f, %s tokens/s%s\n", p.done, p.runs, t, float64(run.Train), float64(run.HeldOut),
		report.Thousands(run.Speed), note)
	if p.done == p.arms && !wasFinished && p.seeds > 1 {
		seed := p.duration(p.arms * t.cfg.Steps)
		p.printf("a seed takes %s, all %d seeds %s\n", report.Clock(seed), p.seeds, report.Clock(time.Duration(p.seeds)*seed))
	}
}

// close erases the live line.
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

// eta estimates the time that all remaining steps will take.
func (p *progress) eta() string { return report.Clock(p.duration(p.left)) }

// duration estimates the time of steps, from the mean of those so far over all recipes.
func (p *progress) duration(steps int) time.Duration {
	at := min(p.jobs, max(p.runs-p.done, 1))
	return time.Duration(float64(steps) * float64(p.took) / float64(max(p.steps, 1)*at))
}
