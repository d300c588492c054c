package convergence

// Arms that differ in settings: learning rates, batches, experts per token.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/trainer/config"
)

// Setting is a value of a setting that a comparison varies.
type Setting struct {
	Name, Value string // as a flag and its text: optimizer.lr, 3e-3
	Apply       func(*config.Config)
}

// VaryRecipes is [ParseRecipes] with every combination of settings for each recipe. Each list has
// the values of one setting. The baseline is the first recipe with the first value of each list, so
// one recipe is enough. A comparison's configuration has the first values.
func VaryRecipes(names string, lists [][]Setting) (all []Recipe, err error) {
	recipes, err := parseRecipes(names)
	if err != nil {
		return nil, err
	}
	short := shortNames(lists)
	for _, r := range recipes {
		for _, combination := range combinations(lists) {
			all = append(all, r.with(combination, short, len(recipes) == 1))
		}
	}
	return all, nil
}

// combinations returns the product of lists. The first one has the first value of each list, and
// the last list varies fastest.
func combinations(lists [][]Setting) (all [][]Setting) {
	all = [][]Setting{nil}
	for _, list := range lists {
		var longer [][]Setting
		for _, begin := range all {
			for _, s := range list {
				longer = append(longer, append(slices.Clone(begin), s))
			}
		}
		all = longer
	}
	return all
}

// shortNames returns the name of each setting in the names of arms: its last part, unless two
// settings share that.
func shortNames(lists [][]Setting) map[string]string {
	names, taken := map[string]string{}, map[string]int{}
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	for _, list := range lists {
		taken[last(list[0].Name)]++
	}
	for _, list := range lists {
		name := list[0].Name
		if names[name] = name; taken[last(name)] == 1 {
			names[name] = last(name)
		}
	}
	return names
}

// with returns r with settings. The name of the result leaves out that of the recipe if there is
// only one.
func (r Recipe) with(settings []Setting, short map[string]string, one bool) Recipe {
	var words, about []string
	if !one {
		words = append(words, r.Name)
	}
	for _, s := range settings {
		words = append(words, short[s.Name]+"="+s.Value)
		about = append(about, s.Name+" "+s.Value)
	}
	r.About = r.Name + ", " + strings.Join(about, ", ")
	r.Name, r.settings = strings.Join(words, "+"), settings
	return r
}

// checkArms returns an error if two arms with varied settings are the same run, as with a setting
// that their precision does not use.
func (c *Comparison) checkArms() error {
	if c.Varied == nil {
		return nil
	}
	seen := map[string]string{}
	for _, r := range c.Recipes {
		cfg := c.config(r, c.Config.Seed)
		precision, err := cfg.Recipe()
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		cfg.Out, cfg.MX, cfg.Options = "", config.MX{}, config.Config{}.Options
		text, err := config.TOML(cfg)
		numbers, failed := json.Marshal(precision)
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		key := string(text) + string(numbers)
		if other := seen[key]; other != "" {
			return fmt.Errorf("%s and %s are the same run: give values that differ and that the precision uses", other, r.Name)
		}
		seen[key] = r.Name
	}
	return nil
}
