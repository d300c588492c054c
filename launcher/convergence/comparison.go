package convergence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer"
	"spmoe/moe"
)

// Comparison describes the runs to compare and how to run them.
type Comparison struct {
	Config    trainer.Config // of all runs; each sets Precision and Out, and Seed is that of the first run
	Ranks     int
	Recipes   []Recipe // the baseline first
	Seeds     int
	Margin    float64 // of equivalence, as a fraction of the baseline's loss
	Out       string  // folder of the comparison
	Jobs      int     // concurrent runs
	KeepState bool    // retain the last checkpoint of each run
	Start     Start
	Console   io.Writer // for progress
	Width     int       // columns of the console if it is a terminal, else 0
	Command   string    // the command line, for the report

	// Disturb, if not nil, returns the value of [trainer.Job.Disturb] for the runs of a recipe.
	Disturb func(recipe string) func(moe.Quantized)
}

// Start trains a prepared job to its end. It returns [trainer.ErrInterrupted] if ctx ended it.
type Start func(ctx context.Context, job *trainer.Job, s Settings) error

// Settings are the settings of one run.
type Settings struct {
	Config trainer.Config
	From   string // checkpoint to resume from; empty: none
	Report trainer.Reporter
}

// task is one run of the comparison.
type task struct {
	recipe Recipe
	seed   uint64
	cfg    trainer.Config
}

func (t task) String() string { return fmt.Sprintf("%s, seed %d", t.recipe.Name, t.seed) }

// tasks returns all runs in order. They go seed by seed, so that finished runs can be compared at
// any time. Ablations come last.
func (c *Comparison) tasks() []task {
	var all, ablations []task
	for _, seed := range c.seeds() {
		for _, r := range c.Recipes {
			switch t := (task{r, seed, c.config(r, seed)}); {
			case !r.Ablation:
				all = append(all, t)
			case seed == c.Config.Seed:
				ablations = append(ablations, t)
			}
		}
	}
	return append(all, ablations...)
}

// Runs returns the number of runs.
func (c *Comparison) Runs() int { return len(c.tasks()) }

func (c *Comparison) seeds() []uint64 {
	var all []uint64
	for i := range c.Seeds {
		all = append(all, c.Config.Seed+uint64(i))
	}
	return all
}

// config returns the configuration of one run.
func (c *Comparison) config(r Recipe, seed uint64) trainer.Config {
	cfg := c.Config
	r.apply(&cfg)
	cfg.Seed, cfg.Out = seed, filepath.Join(c.Out, r.Name, fmt.Sprintf("seed-%d", seed))
	if c.Jobs > 1 && cfg.Threads == 0 {
		cfg.Threads = max(1, runtime.GOMAXPROCS(0)/(c.Ranks*c.Jobs))
	}
	return cfg
}

const (
	maxSeeds = 1000
	maxJobs  = 1024
)

// Check returns an error if the comparison cannot be run or resumed. It writes nothing. The user
// can correct the causes of its errors.
func (c *Comparison) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(c.Seeds >= 1 && c.Seeds <= maxSeeds, "--seeds is %d: give 1 or more, 3 or more for a meaningful verdict, at most %d", c.Seeds, maxSeeds)
	must(finite(c.Margin) && c.Margin > 0 && c.Margin < 1, "--margin is %g: give a positive number of percent below 100, such as 0.5", 100*c.Margin)
	must(c.Jobs >= 1 && c.Jobs <= maxJobs, "--jobs is %d: give 1 or more concurrent runs, at most %d", c.Jobs, maxJobs)
	must(c.Config.RecordEvery >= 1, "record_every is %d: a comparison needs records: give 1 or more", c.Config.RecordEvery)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.checkFolder(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range c.tasks() {
		if err := t.cfg.Validate(c.Ranks); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		state, err := stateOf(t.cfg)
		if err != nil {
			return err
		}
		if seen[t.recipe.Name] || state.finished() {
			continue
		}
		seen[t.recipe.Name] = true
		job, err := trainer.Prepare(t.cfg, c.Ranks, state.checkpoint, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", t.recipe.Name, err)
		}
		if err := errors.Join(job.CheckDisk(), job.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Run trains all runs that are not finished yet and compares them. If ctx ends, it stops with
// [trainer.ErrInterrupted], and the next Run continues. Check must have succeeded.
func (c *Comparison) Run(ctx context.Context) (Result, error) {
	if err := c.saveFolder(); err != nil {
		return Result{}, err
	}
	tasks := c.tasks()
	logs, progress := make([]*record.Log, len(tasks)), newProgress(c, tasks)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(c.Jobs)
	for i, t := range tasks {
		group.Go(func() (err error) {
			if within.Err() != nil {
				return trainer.ErrInterrupted
			}
			logs[i], err = c.run(within, t, progress)
			return err
		})
	}
	err := group.Wait()
	progress.close()
	if err != nil {
		return Result{}, err
	}
	return c.compare(tasks, logs)
}

// run trains one run, unless it is finished, and returns its record.
func (c *Comparison) run(ctx context.Context, t task, p *progress) (*record.Log, error) {
	s, err := stateOf(t.cfg)
	if err != nil {
		return nil, err
	}
	wasFinished := s.finished()
	if !wasFinished {
		failed := c.train(ctx, t, s, p)
		if errors.Is(failed, trainer.ErrInterrupted) {
			return nil, failed
		}
		if s, err = stateOf(t.cfg); err != nil {
			return nil, errors.Join(failed, err)
		}
		switch {
		case s.finished(): // also if its losses are not finite, which train calls a failure
		case failed != nil:
			return nil, fmt.Errorf("%s: %w", t, failed)
		default:
			return nil, fmt.Errorf("%s: the run has ended, but its record is incomplete: %s", t, filepath.Join(t.cfg.Out, record.File))
		}
	}
	if !c.KeepState {
		if err := dropCheckpoints(t.cfg.Out); err != nil {
			return nil, err
		}
	}
	p.finished(t, c.summarize(t, s.log), wasFinished)
	return s.log, nil
}

func (c *Comparison) train(ctx context.Context, t task, s state, p *progress) error {
	report := p.begin(t)
	job, err := trainer.Prepare(t.cfg, c.Ranks, s.checkpoint, report)
	if err != nil {
		return err
	}
	defer job.Close()
	if c.Disturb != nil {
		job.Disturb = c.Disturb(t.recipe.Name)
	}
	return c.Start(ctx, job, Settings{t.cfg, s.checkpoint, report})
}

// state is the progress of a run on disk.
type state struct {
	log        *record.Log // nil: none
	checkpoint string      // empty: none
	steps      int
}

func (s state) finished() bool {
	return s.log != nil && s.log.Done != nil && s.log.Done.Step == s.steps
}

func stateOf(cfg trainer.Config) (s state, err error) {
	s.steps = cfg.Steps
	if s.log, err = record.Read(cfg.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: to repeat this run, move %s away", err, cfg.Out)
	}
	if s.checkpoint, err = checkpoint.Latest(cfg.Out); err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return s, err
	}
	return s, nil
}

// dropCheckpoints deletes the checkpoints of a finished run.
func dropCheckpoints(run string) error {
	entries, err := os.ReadDir(run)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "step-") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(run, e.Name())))
		}
	}
	return err
}
