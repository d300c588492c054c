package convergence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
)

// Comparison describes the runs to compare and how to run them.
type Comparison struct {
	Config    config.Config // of all runs; each sets Precision and Out, and Seed is that of the first run
	Ranks     int
	Recipes   []Recipe           // the baseline first
	Varied    []string           // the settings of VaryRecipes with their values, for the plan and the report
	Design    design.Design      // how many seeds, and when and how they are judged
	Out       string             // folder of the comparison
	Held      *system.FolderLock // that folder; nil: it is not held
	Jobs      int                // concurrent runs
	KeepState bool               // retain the last checkpoint of each run
	Start     Start
	Console   io.Writer // for progress
	Width     int       // columns of the console if it is a terminal, else 0
	Command   string    // the command line, for the report

	// Looked, if not nil, is called with the result of each look that does not end the comparison.
	Looked func(Result) error
	// Disturb, if not nil, returns the value of [trainer.Job.Disturb] for the runs of a recipe.
	Disturb func(recipe string) func(moe.Quantized)
}

// Start trains a prepared job to its end. It returns [trainer.ErrInterrupted] if ctx ended it.
type Start func(ctx context.Context, job *trainer.Job, s Settings) error

// Settings are the settings of one run.
type Settings struct {
	Config config.Config
	From   string // checkpoint to resume from; empty: none
	Report events.Reporter
}

// task is one run of the comparison.
type task struct {
	recipe Recipe
	seed   uint64
	cfg    config.Config
}

func (t task) String() string { return fmt.Sprintf("%s, seed %d", t.recipe.Name, t.seed) }

// tasks returns all runs that the design may take, in order. They go seed by seed, so that finished
// runs can be compared at any look.
func (c *Comparison) tasks() []task { return c.tasksOf(c.Recipes, 0, c.Design.Seeds()) }

// tasksOf returns the runs of recipes with the seeds number [lo, hi).
func (c *Comparison) tasksOf(recipes []Recipe, lo, hi int) (all []task) {
	for _, seed := range c.seeds()[lo:hi] {
		for _, r := range recipes {
			all = append(all, task{r, seed, c.config(r, seed)})
		}
	}
	return all
}

// Runs returns the largest number of runs.
func (c *Comparison) Runs() int { return len(c.tasks()) }

func (c *Comparison) seeds() []uint64 {
	var all []uint64
	for i := range c.Design.Seeds() {
		all = append(all, c.Config.Seed+uint64(i))
	}
	return all
}

// config returns the configuration of one run.
func (c *Comparison) config(r Recipe, seed uint64) config.Config {
	cfg := c.Config
	r.apply(&cfg)
	cfg.Seed, cfg.Out = seed, c.folder(r.Name, seed)
	if c.Jobs > 1 && cfg.Threads == 0 {
		cfg.Threads = max(1, runtime.GOMAXPROCS(0)/(c.Ranks*c.Jobs))
	}
	return cfg
}

// folder returns the folder of a run.
func (c *Comparison) folder(recipe string, seed uint64) string {
	return filepath.Join(c.Out, recipe, fmt.Sprintf("seed-%d", seed))
}

// MaxSeeds is the largest number of seeds of a comparison.
const MaxSeeds = 1000

const maxJobs = 1024

// CheckSettings returns an error if a setting has a value that no comparison can have, whatever its
// design.
func (c *Comparison) CheckSettings() error {
	var errs []error
	if c.Jobs < 1 || c.Jobs > maxJobs {
		errs = append(errs, fmt.Errorf("--jobs is %d: give 1 or more concurrent runs, at most %d", c.Jobs, maxJobs))
	}
	if c.Config.RecordEvery < 1 {
		errs = append(errs, fmt.Errorf("record_every is %d: a comparison needs records: give 1 or more", c.Config.RecordEvery))
	}
	return errors.Join(errs...)
}

// checkDesign returns an error if the design has impossible values.
func (c *Comparison) checkDesign() error {
	var errs []error
	if n := c.Design.Seeds(); n < 1 || n > MaxSeeds {
		errs = append(errs, fmt.Errorf("the comparison has %d seeds: give 1 or more, at most %d", n, MaxSeeds))
	}
	if m := c.Design.Margin; !(m > 0 && m < 1) {
		errs = append(errs, fmt.Errorf("--margin is %g: give a positive number of percent below 100, such as 0.5", 100*m))
	}
	return errors.Join(errs...)
}

// Check returns an error if the comparison cannot be run or resumed. It writes nothing. The user
// can correct the causes of its errors.
func (c *Comparison) Check() error {
	if err := errors.Join(c.CheckSettings(), c.checkDesign()); err != nil {
		return err
	}
	if err := errors.Join(c.checkArms(), c.checkFolder()); err != nil {
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

// run trains one run, unless it is finished, and returns its record.
func (c *Comparison) run(ctx context.Context, t task, p *progress) (*record.Log, error) {
	s, err := stateOf(t.cfg)
	if err != nil {
		return nil, err
	}
	wasFinished := s.finished()
	if !wasFinished {
		failed := c.train(ctx, t, s, p)
		if errors.Is(failed, events.ErrInterrupted) {
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
		if err := dropCheckpoints(t.cfg); err != nil {
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

func stateOf(cfg config.Config) (s state, err error) {
	s.steps = cfg.Steps
	if s.log, err = record.Read(cfg.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: to repeat this run, move %s away", err, cfg.Out)
	}
	if s.checkpoint, err = checkpoint.Latest(cfg.Out); err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return s, err
	}
	return s, nil
}

// dropCheckpoints deletes the checkpoints of a finished run, if its folder has no others.
func dropCheckpoints(cfg config.Config) error {
	held, err := system.LockFolder(cfg.Out)
	if err != nil {
		return err
	}
	defer held.Release()
	entries, err := checkpoint.List(cfg.Out)
	if checkpoint.Several(cfg.Out) != "" {
		return err
	}
	for _, e := range entries {
		run, lost := held.Root()
		if lost != nil {
			return lost
		}
		err = errors.Join(err, run.RemoveAll(e.Name))
	}
	return err
}
