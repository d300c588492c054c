package convergence

// The runs of a comparison: each is made once, goes on from its checkpoint if it was cut off, and
// keeps the losses of all its steps. The console has a line per finished run, and one now and then
// from a run under way.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// Run writes the plan, trains the runs that are not finished yet and judges the arms. If ctx ends,
// it stops with [events.ErrInterrupted], and the next Run continues. Check must have succeeded.
func (c *Comparison) Run(ctx context.Context) (Result, error) {
	hash, err := c.savePlan()
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintf(c.Console, "plan, written before the first run: %s, SHA-256 %s\n", filepath.Join(c.Out, planFile), hash)
	tasks, cfg := c.tasks(), c.Config
	p := newProgress(c.Console, tasks)
	logs := make([]*record.Log, len(tasks))
	result := Result{Command: c.Command, Version: system.Version(), Plan: hash, Margin: c.Margin, Setup: Setup{
		Flavor: cfg.Flavor, Parameters: cfg.Model.Count().Total, Steps: cfg.Steps, Batch: cfg.Batch, Seq: cfg.Seq,
		Ranks: c.Ranks, Seeds: c.seeds(), Tail: tail(cfg.Steps),
	}}
	for _, a := range c.Arms {
		result.Arms = append(result.Arms, ArmResult{Name: a.Name, About: a.About})
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(c.Jobs)
	for i, t := range tasks {
		group.Go(func() (err error) {
			if within.Err() != nil {
				return events.ErrInterrupted
			}
			logs[i], err = c.run(within, t, p)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result, err
	}
	c.judge(&result, tasks, logs)
	if err := c.Held.Check(); err != nil {
		return result, err
	}
	return result, result.write(c.Out)
}

// run trains one run, unless it is finished, and returns its record.
func (c *Comparison) run(ctx context.Context, t task, p *progress) (*record.Log, error) {
	s, err := stateOf(t.cfg)
	if err != nil {
		return nil, err
	}
	earlier := s.finished
	if !earlier {
		failed := c.train(ctx, t, s, p)
		if errors.Is(failed, events.ErrInterrupted) {
			return nil, failed
		}
		if s, err = stateOf(t.cfg); err != nil {
			return nil, errors.Join(failed, err)
		}
		if failed == nil {
			failed = fmt.Errorf("the run has ended, but its record is incomplete: %s", filepath.Join(t.cfg.Out, record.File))
		}
		if !s.finished { // it is finished also if its losses are not finite, which train calls a failure
			return nil, fmt.Errorf("%s: %w", t, failed)
		}
	}
	if err := dropCheckpoints(t.cfg.Out); err != nil {
		return nil, err
	}
	p.finished(t, newRun(t, s.log), earlier)
	return s.log, nil
}

// longestWait is how long a rank waits for another one before the run fails.
const longestWait = 10 * time.Minute

func (c *Comparison) train(ctx context.Context, t task, s state, p *progress) error {
	job, err := trainer.Prepare(t.cfg, c.Ranks, s.checkpoint, p.begin(t))
	if err != nil {
		return err
	}
	defer job.Close()
	if c.prepared != nil {
		c.prepared(t, job)
	}
	if s.checkpoint == "" {
		if _, err := record.SetAside(t.cfg.Out); err != nil {
			return err
		}
	}
	return job.Run(ctx, spmd.Goroutines{N: c.Ranks, Limits: collective.Limits{Wait: longestWait}})
}

// state is the progress of a run on disk.
type state struct {
	log        *record.Log // nil: none
	checkpoint string      // empty: none
	finished   bool
}

func stateOf(cfg config.Config) (s state, err error) {
	if s.log, err = record.Read(cfg.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: to repeat this run, move %s away", err, cfg.Out)
	}
	s.finished = err == nil && s.log.Done != nil && s.log.Done.Step == cfg.Steps
	if s.checkpoint, err = checkpoint.Latest(cfg.Out); errors.Is(err, checkpoint.ErrNone) {
		err = nil
	}
	return s, err
}

// dropCheckpoints deletes the checkpoints of a finished run.
func dropCheckpoints(folder string) error {
	entries, err := checkpoint.List(folder)
	if err != nil || len(entries) == 0 {
		return err
	}
	run, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer run.Close()
	for _, e := range entries {
		err = errors.Join(err, run.RemoveAll(e.Name))
	}
	return err
}

// progress collects the reports of runs, which may run concurrently.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	left  int // steps to make
	made  int // steps that this command made
	done  int // finished runs
	runs  int
	began time.Time
	wrote time.Time // the last line
}

func newProgress(w io.Writer, tasks []task) *progress {
	p := &progress{w: w, runs: len(tasks), began: time.Now(), wrote: time.Now()}
	for _, t := range tasks {
		p.left += t.cfg.Steps
	}
	return p
}

// eta estimates the time that all remaining steps will take.
func (p *progress) eta() string {
	return report.Clock(time.Duration(float64(time.Since(p.began)) * float64(p.left) / float64(max(p.made, 1))))
}

func (p *progress) print(format string, args ...any) {
	p.wrote = time.Now()
	fmt.Fprintf(p.w, format, args...)
}

// finished prints the outcome of a run. earlier marks a run that an earlier command trained.
func (p *progress) finished(t task, run Run, earlier bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	note := ""
	if earlier {
		p.left -= t.cfg.Steps
		note = " (from an earlier command)"
	}
	if run.Diverged {
		note += " DIVERGED"
	}
	if p.made > 0 && p.left > 0 {
		note += ", ETA " + p.eta()
	}
	p.print("[%d/%d] %s: training loss %.4f, validation loss %.4f%s\n", p.done, p.runs, t, float64(run.Train), float64(run.HeldOut), note)
}

// reporter receives the reports of one run.
type reporter struct {
	*progress
	events.Reporter // of what is not printed
	task            task
	at              int // finished steps
}

func (p *progress) begin(t task) *reporter {
	return &reporter{progress: p, Reporter: report.Console{W: io.Discard}, task: t}
}

// Start implements [events.Reporter], like the following methods.
func (r *reporter) Start(s events.Start) {
	r.mu.Lock()
	r.at = s.From
	r.left -= s.From
	r.mu.Unlock()
	if s.From > 0 {
		r.say(fmt.Sprintf("resumes after step %d", s.From))
	}
}

func (r *reporter) Step(s events.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made += s.Step - r.at
	r.left -= s.Step - r.at
	r.at = s.Step
	if time.Since(r.wrote) > 20*time.Second && s.Step < s.Steps { // a sign of life
		r.print("%s: step %d of %d, loss %.4f, ETA %s\n", r.task, s.Step, s.Steps, s.Loss, r.eta())
	}
}

func (r *reporter) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print("%s: %s\n", r.task, text)
}

func (r *reporter) Alarm(a events.Alarm) { r.say("ALARM: " + a.Text) }

func (r *reporter) Stopping(s events.Stopping) { r.say(s.String()) }
