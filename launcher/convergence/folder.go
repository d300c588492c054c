package convergence

// The folder of a comparison holds its plan, so that a comparison can only be resumed unchanged.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// planFile is the name of the plan in the folder.
const planFile = "comparison.toml"

// plan is everything that the result depends on. Ablations are not part of it. They may be added
// later, because each is a table row of its own.
type plan struct {
	Precision []string       `toml:"precision"` // baseline first
	Seeds     int            `toml:"seeds"`
	Margin    float64        `toml:"margin"` // percent; fixed before the runs, like the number of seeds
	Ranks     int            `toml:"ranks"`
	Config    trainer.Config `toml:"config"`
}

// freeSettings do not change the losses of a run.
var freeSettings = []string{"config.precision", "config.out", "config.threads", "config.save_every", "config.save_retry", "config.keep", "config.log_every"}

func (c *Comparison) plan() ([]byte, error) {
	p := plan{Seeds: c.Seeds, Margin: 100 * c.Margin, Ranks: c.Ranks, Config: c.Config}
	for _, r := range c.Recipes {
		if !r.Ablation {
			p.Precision = append(p.Precision, r.Name)
		}
	}
	var buf bytes.Buffer
	err := toml.NewEncoder(&buf).Encode(p)
	return buf.Bytes(), err
}

// checkFolder returns an error if the folder holds another comparison, or something else.
func (c *Comparison) checkFolder() error {
	entries, err := os.ReadDir(c.Out)
	others := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == system.LockFile })
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(others) == 0 {
		return nil
	} else if err != nil {
		return fmt.Errorf("--out: %w: give a folder for the comparison", err)
	}
	path := filepath.Join(c.Out, planFile)
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not empty and holds no comparison (%s): give another --out", c.Out, planFile)
	} else if err != nil {
		return err
	}
	mine, err := c.plan()
	if err != nil {
		return err
	}
	existing, err := flatten(text)
	if err != nil {
		return fmt.Errorf("%s: %w: give another --out", path, err)
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

// saveFolder creates the folder and writes the plan.
func (c *Comparison) saveFolder() error {
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		return err
	}
	text, err := c.plan()
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(c.Out, planFile), text)
}
