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

// Comparison says what is compared, and how it is run.
type Comparison struct {
	Config    trainer.Config // of all runs; Precision and Out are set for each, and Seed is the first run's
	Ranks     int
	Recipes   []Recipe // the baseline first
	Seeds     int
	Margin    float64 // of equivalence, as a part of the baseline's loss
	Out       string  // folder of the comparison
	Jobs      int     // runs at the same time
	KeepState bool    // keep the last checkpoint of each run
	Start     Start
	Console   io.Writer // for progress
	Width     int       // columns of the console if it is a terminal, else 0
	Command   string    // that has started the comparison, for the report

	// Disturb, if it is not nil, returns what [trainer.Job.Disturb] is in the runs of a recipe.
	Disturb func(recipe string) func(moe.Quantized)
}

// Start trains a job that has been prepared with these settings until it ends. It returns
// [trainer.ErrInterrupted] if ctx has ended it.
type Start func(ctx context.Context, job *trainer.Job, s Settings) error

// Settings are those of one run.
type Settings struct {
	Config trainer.Config
	From   string // checkpoint to go on from; empty: from the beginning
	Report trainer.Reporter
}

// task is one run of the comparison.
type task struct {
	recipe Recipe
	seed   uint64
	cfg    trainer.Config
}

func (t task) String() string { return fmt.Sprintf("%s, seed %d", t.recipe.Name, t.seed) }

// tasks returns all runs in the order in which they are made: seed by seed, so that what there is
// can be compared at any time, and ablations at the end.
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

// Runs returns how many runs there are in all.
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

// Check reports what keeps the comparison from being run, or from being gone on with. It writes
// nothing; its errors are the user's to mend.
func (c *Comparison) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(c.Seeds >= 1 && c.Seeds <= maxSeeds, "--seeds is %d: give 1 or more, 3 or more for a verdict to be worth something, at most %d", c.Seeds, maxSeeds)
	must(finite(c.Margin) && c.Margin > 0 && c.Margin < 1, "--margin is %g: give a positive number of percent below 100, such as 0.5", 100*c.Margin)
	must(c.Jobs >= 1 && c.Jobs <= maxJobs, "--jobs is %d: give 1 or more runs at the same time, at most %d", c.Jobs, maxJobs)
	must(c.Config.RecordEvery >= 1, "record_every is %d: a comparison is made from records: give 1 or more", c.Config.RecordEvery)
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
		if err := job.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Run makes all runs that are not finished yet and compares them. When ctx ends it stops with
// [trainer.ErrInterrupted], and the next Run goes on. Check must have allowed it.
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

// run makes one run, unless that has been done, and returns its record.
func (c *Comparison) run(ctx context.Context, t task, p *progress) (*record.Log, error) {
	s, err := stateOf(t.cfg)
	if err != nil {
		return nil, err
	}
	again := s.finished()
	if !again {
		if err := c.train(ctx, t, s, p); errors.Is(err, trainer.ErrInterrupted) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		if s, err = stateOf(t.cfg); err != nil {
			return nil, err
		}
		if !s.finished() {
			return nil, fmt.Errorf("%s: the run has ended, but its record has not: %s", t, filepath.Join(t.cfg.Out, record.File))
		}
	}
	if !c.KeepState {
		if err := dropCheckpoints(t.cfg.Out); err != nil {
			return nil, err
		}
	}
	p.finished(t, c.summarize(t, s.log), again)
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

// state is how far a run has come.
type state struct {
	log        *record.Log // nil: there is none
	checkpoint string      // empty: there is none
	steps      int
}

func (s state) finished() bool {
	return s.log != nil && s.log.Done != nil && s.log.Done.Step == s.steps
}

func stateOf(cfg trainer.Config) (s state, err error) {
	s.steps = cfg.Steps
	if s.log, err = record.Read(cfg.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: to make this run again, move %s away", err, cfg.Out)
	}
	if s.checkpoint, err = checkpoint.Latest(cfg.Out); err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return s, err
	}
	return s, nil
}

// dropCheckpoints deletes the state of a run that is finished.
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
