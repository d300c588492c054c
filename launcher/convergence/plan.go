// Package convergence tests whether training in one way converges like training in another.
//
// A [Comparison] is planned before its first run: arms, seeds, margin and tests are written down.
// Each arm trains from the same weights on the same tokens, seed by seed. The [Result] has the
// paired differences of the final losses and the verdict on each arm.
package convergence

// The plan of a comparison is a file in its folder. A comparison can only be resumed unchanged.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
)

// Comparison describes the runs to compare and how to run them.
type Comparison struct {
	Config  config.Config // of the baseline with the first seed; Precision and Out are each run's own
	Ranks   int
	Arms    []Arm // the baseline first, the null arm last
	Seeds   int
	Margin  float64            // largest difference that counts as equivalent, a fraction of the baseline's loss
	Out     string             // folder of the comparison
	Held    *system.FolderLock // that folder; nil: it is not held
	Jobs    int                // concurrent runs
	Console io.Writer          // for progress
	Command string             // the command line that continues the comparison

	existing []byte                   // the plan in the folder, which Check has read; nil: there is none
	prepared func(task, *trainer.Job) // for tests: called before each run
}

// The largest numbers of seeds and of concurrent runs.
const maxSeeds, maxJobs = 1000, 1024

// task is one run of the comparison.
type task struct {
	arm  Arm
	seed uint64
	cfg  config.Config
}

func (t task) String() string { return fmt.Sprintf("%s, seed %d", t.arm.Name, t.seed) }

// tasks returns all runs in their order: seed by seed.
func (c *Comparison) tasks() (all []task) {
	for _, seed := range c.seeds() {
		for _, a := range c.Arms {
			all = append(all, task{a, seed, c.config(a, seed)})
		}
	}
	return all
}

func (c *Comparison) seeds() (all []uint64) {
	for i := range c.Seeds {
		all = append(all, c.Config.Seed+uint64(i))
	}
	return all
}

// config returns the configuration of one run.
func (c *Comparison) config(a Arm, seed uint64) config.Config {
	cfg := c.Config
	if err := a.apply(&cfg); err != nil {
		panic(err) // with has accepted the words
	}
	cfg.Seed, cfg.Out = seed, filepath.Join(c.Out, a.Name, fmt.Sprintf("seed-%d", seed))
	if c.Jobs > 1 && cfg.Threads == 0 {
		cfg.Threads = max(1, runtime.GOMAXPROCS(0)/(c.Ranks*c.Jobs))
	}
	return cfg
}

// planFile is the name of the plan in the folder.
const planFile = "plan.toml"

// plan is everything that the result depends on.
type plan struct {
	Arms        []string      `toml:"arms"` // the baseline first, the null arm last
	Seeds       []uint64      `toml:"seeds"`
	Margin      float64       `toml:"margin"` // percent
	Losses      []string      `toml:"losses"` // that the verdicts are about
	Equivalence string        `toml:"equivalent_if"`
	Difference  string        `toml:"different_if"`
	Records     string        `toml:"kept"`
	Recipes     []string      `toml:"recipe_files,multiline,omitempty"` // their text
	Ranks       int           `toml:"ranks"`
	Config      config.Config `toml:"config"`
}

// The tests of every plan, in words.
const (
	equivalenceRule = "two one-sided t-tests of the paired differences against the margin pass at 5 % for each of the two losses"
	differenceRule  = "p of two-sided t-tests of the paired differences against zero, the smaller of the two losses times two, " +
		"is below 5 % after Holm's correction over all arms, the null arm included"
	recordsRule = "metrics.jsonl in the folder of each run has the loss of every step"
)

// free matches the lines of a plan with settings that do not change the losses of a run.
var free = regexp.MustCompile(`(?m)^(precision|out|threads|save_every|save_retry|keep|log_every) = .*\n`)

func (c *Comparison) plan() ([]byte, error) {
	p := plan{
		Seeds: c.seeds(), Margin: 100 * c.Margin, Ranks: c.Ranks, Config: c.Config,
		Losses:      []string{fmt.Sprintf("training, mean of the last %d steps", tail(c.Config.Steps)), "validation, after the last step"},
		Equivalence: equivalenceRule, Difference: differenceRule, Records: recordsRule,
	}
	for _, a := range c.Arms {
		p.Arms = append(p.Arms, a.Name)
		if a.file != "" {
			p.Recipes = append(p.Recipes, a.file)
		}
	}
	var buf bytes.Buffer
	err := toml.NewEncoder(&buf).Encode(p)
	return buf.Bytes(), err
}

// Check returns an error if the comparison cannot be run or resumed. It writes nothing. The user
// can correct the causes of its errors.
func (c *Comparison) Check() error {
	var errs []error
	if c.Seeds < 1 || c.Seeds > maxSeeds {
		errs = append(errs, fmt.Errorf("--seeds is %d: give 1 or more, at most %d", c.Seeds, maxSeeds))
	}
	if !(c.Margin > 0 && c.Margin < 1) {
		errs = append(errs, fmt.Errorf("--margin is %g: give a positive number of percent below 100, such as 0.5", 100*c.Margin))
	}
	if c.Jobs < 1 || c.Jobs > maxJobs {
		errs = append(errs, fmt.Errorf("--jobs is %d: give 1 or more concurrent runs, at most %d", c.Jobs, maxJobs))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := cmp.Or(c.checkArms(), c.checkFolder()); err != nil {
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
		if seen[t.arm.Name] || state.finished {
			continue
		}
		seen[t.arm.Name] = true
		job, err := trainer.Prepare(t.cfg, c.Ranks, state.checkpoint, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", t.arm.Name, err)
		}
		if err := errors.Join(job.CheckDisk(), job.Close()); err != nil {
			return err
		}
	}
	return nil
}

// checkFolder returns an error if the folder holds another comparison, or something else.
func (c *Comparison) checkFolder() error {
	path := filepath.Join(c.Out, planFile)
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := system.ReadDir(c.Out)
		others := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == system.LockFile })
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(others) > 0 {
			return fmt.Errorf("%s holds no comparison (%s), but something else: give another --out", c.Out, planFile)
		}
		return nil
	} else if err != nil {
		return err
	}
	var there plan
	if err := stricttoml.Unmarshal(text, &there); err != nil {
		return fmt.Errorf("%s: %w: give another --out", path, err)
	}
	if c.Config.DataRules == int(datasets.NewestRules) {
		c.Config.DataRules = there.Config.DataRules // the newest when the comparison was planned
	}
	mine, err := c.plan()
	if err != nil {
		return err
	}
	lines := func(plan []byte) []string { return strings.Split(free.ReplaceAllString(string(plan), "")+"end", "\n") }
	old, now := lines(text), lines(mine)
	for i := range min(len(old), len(now)) {
		if old[i] != now[i] {
			return fmt.Errorf("%s holds a comparison in which the plan has %.300q, not %.300q: to resume it, give the flags it was started with, or give another --out", c.Out, old[i], now[i])
		}
	}
	c.existing = text
	return nil
}

// savePlan writes the plan, unless the folder has one. It returns the SHA-256 of the plan's text.
func (c *Comparison) savePlan() (hash string, err error) {
	if c.existing == nil {
		if c.existing, err = c.plan(); err == nil {
			err = system.WriteFile(filepath.Join(c.Out, planFile), c.existing)
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256(c.existing)), err
}
