package convergence

// The folder of a comparison holds its plan, so that a comparison can only be resumed unchanged.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/convergence/design"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

// planFile is the name of the plan in the folder.
const planFile = "plan.toml"

// plan is everything that the result depends on. It is written before the first run, and never
// again.
type plan struct {
	Precision []string      `toml:"precision"` // baseline first
	Varied    []string      `toml:"varied,omitempty"`
	Losses    []string      `toml:"losses"` // that the verdict is about
	Second    outcome       `toml:"second_outcome,omitempty"`
	Margin    float64       `toml:"margin"` // percent
	Ranks     int           `toml:"ranks"`
	Seeds     []uint64      `toml:"seeds"` // at most, in the order of their runs
	Config    config.Config `toml:"config"`
	Tests     tests         `toml:"tests"`
}

// outcome is the entry of a second outcome in a plan.
type outcome struct {
	Loss string `toml:"loss"`
	Rule string `toml:"rule"`
}

// tests are the significance tests of a plan, with one element per look.
type tests struct {
	Alpha       float64   `toml:"alpha"`              // of all looks together, for each of the two wrong verdicts
	Equivalence []float64 `toml:"equivalence_levels"` // of each one-sided test against the margin
	Difference  []float64 `toml:"difference_levels"`  // of the two-sided test of each loss against zero
	Looks       []int     `toml:"looks"`              // after how many seeds
}

func testsOf(d design.Design) tests {
	t := tests{Alpha: design.Alpha}
	for _, look := range d.Looks {
		t.Looks = append(t.Looks, look.Seeds)
		t.Equivalence = append(t.Equivalence, look.Equivalence)
		t.Difference = append(t.Difference, look.Difference)
	}
	return t
}

// freeSettings do not change the losses of a run.
var freeSettings = []string{"config.precision", "config.out", "config.threads", "config.save_every", "config.save_retry", "config.keep", "config.log_every"}

func (c *Comparison) plan() ([]byte, error) {
	p := plan{
		Varied: c.Varied,
		Losses: []string{fmt.Sprintf("training, mean of the last %d steps", tail(c.Config.Steps)), "validation, after the last step"},
		Margin: 100 * c.Design.Margin, Ranks: c.Ranks, Seeds: c.seeds(), Config: c.Config, Tests: testsOf(c.Design), Second: c.plannedAverage(),
	}
	for _, r := range c.Recipes {
		p.Precision = append(p.Precision, r.Name)
	}
	var buf bytes.Buffer
	err := toml.NewEncoder(&buf).Encode(p)
	return buf.Bytes(), err
}

// existingPlan returns the plan in the folder, or nil if there is none. It returns an error if the
// folder holds something else.
func (c *Comparison) existingPlan() ([]byte, error) {
	path := filepath.Join(c.Out, planFile)
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	entries, err := system.ReadDir(c.Out)
	others := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == system.LockFile || e.Name() == pilotFolder })
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("--out: %w: give a folder for the comparison", err)
	case len(others) > 0:
		return nil, fmt.Errorf("%s is not empty and holds no comparison (%s): give another --out", c.Out, planFile)
	}
	return nil, nil
}

// checkFolder returns an error if the folder holds another comparison, or something else.
func (c *Comparison) checkFolder() error {
	path := filepath.Join(c.Out, planFile)
	text, err := c.existingPlan()
	if err != nil || text == nil {
		return err
	}
	existing, err := flatten(text)
	if err != nil {
		return fmt.Errorf("%s: %w: give another --out", path, err)
	}
	// A comparison of an earlier version keeps its rules.
	const rules = "config.data_rules"
	existing[rules] = cmp.Or(existing[rules], fmt.Sprint(datasets.FirstRules))
	if n, err := strconv.Atoi(existing[rules]); err == nil && n >= 1 && c.Config.DataRules == int(datasets.NewestRules) {
		c.Config.DataRules = n
	}
	mine, err := c.plan()
	if err != nil {
		return err
	}
	wanted, err := flatten(mine)
	if err != nil {
		return err
	}
	if what := firstDifference(existing, wanted); what != "" {
		return fmt.Errorf("%s holds a comparison in which %s: to resume it, give the flags it was started with, or give another --out", c.Out, what)
	}
	return nil
}

// firstDifference names the alphabetically first setting that differs, or returns "".
func firstDifference(existing, wanted map[string]string) string {
	names := map[string]bool{}
	for name := range existing {
		names[name] = true
	}
	for name := range wanted {
		names[name] = true
	}
	var different []string
	for name := range names {
		if existing[name] != wanted[name] && !slices.Contains(freeSettings, name) {
			different = append(different, name)
		}
	}
	if len(different) == 0 {
		return ""
	}
	name := slices.Min(different)
	or := func(value string) string {
		if value == "" {
			return "not set"
		}
		return value
	}
	return fmt.Sprintf("%s is %s, not %s", strings.TrimPrefix(name, "config."), or(existing[name]), or(wanted[name]))
}

// flatten maps the paths of a plan's TOML text to their values.
func flatten(text []byte) (map[string]string, error) {
	if err := stricttoml.Unmarshal(text, new(plan)); err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	flat := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if inner, ok := v.(map[string]any); ok {
			for key, v := range inner {
				walk(strings.TrimPrefix(path+"."+key, "."), v)
			}
			return
		}
		flat[path] = fmt.Sprint(v)
	}
	walk("", tree)
	return flat, nil
}

// saveFolder creates the folder and writes the plan, unless there is one. It returns the SHA-256 of
// the plan's text.
func (c *Comparison) saveFolder() (hash string, err error) {
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		return "", err
	}
	text, err := c.existingPlan()
	if err == nil && text == nil {
		if text, err = c.plan(); err == nil {
			err = system.WriteFile(filepath.Join(c.Out, planFile), text)
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// averagedRule says how the second outcome is tested along with the losses.
const averagedRule = "the losses decide: verdict, number of seeds and exit code are theirs; " +
	"this outcome has a verdict of its own, after the same seeds and at the same levels, which are not corrected for it"

// plannedAverage returns what a plan says of the averaged weights, if they are an outcome.
func (c *Comparison) plannedAverage() (o outcome) {
	if c.Config.EMA == 0 {
		return o
	}
	return outcome{fmt.Sprintf("validation with averaged weights (decay %g per step), after the last step", c.Config.EMA), averagedRule}
}
