package convergence

// The runs of a comparison: each is made once, goes on from its checkpoint if it was cut off, and
// keeps the losses of all its steps. The console has a line per finished run.

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
	p := &progress{w: c.Console, runs: len(tasks)}
	logs := make([]*record.Log, len(tasks))
	result := Result{
		Command: c.Command,
		Version: system.Version(),
		Plan:    hash,
		Margin:  c.Margin,
		Setup: Setup{
			Flavor: cfg.Flavor, Parameters: cfg.Model.Count().Total, Steps: cfg.Steps, Batch: cfg.Batch, Seq: cfg.Seq,
			Ranks: c.Ranks, Seeds: c.seeds(), Tail: tail(cfg.Steps),
		},
	}
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

// progress prints what becomes of the runs, which may run concurrently.
type progress struct {
	mu   sync.Mutex
	w    io.Writer
	done int // finished runs
	runs int
}

// finished prints the outcome of a run. earlier marks a run that an earlier command trained.
func (p *progress) finished(t task, run Run, earlier bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	note := ""
	if earlier {
		note = " (from an earlier command)"
	}
	if run.Diverged {
		note += " DIVERGED"
	}
	fmt.Fprintf(p.w, "[%d/%d] %s: training loss %.4f, validation loss %.4f%s\n", p.done, p.runs, t, float64(run.Train), float64(run.HeldOut), note)
}

// reporter receives the reports of one run.
type reporter struct {
	*progress
	events.Reporter // of what is not printed
	task            task
}

func (p *progress) begin(t task) *reporter {
	return &reporter{p, report.Console{W: io.Discard}, t}
}

func (r *reporter) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.w, "%s: %s\n", r.task, text)
}

// Alarm implements [events.Reporter], like the next method.
func (r *reporter) Alarm(a events.Alarm) { r.say("ALARM: " + a.Text) }

func (r *reporter) Stopping(s events.Stopping) { r.say(s.String()) }
