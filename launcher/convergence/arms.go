package convergence

// Arms: what a comparison trains. An arm is a precision or a recipe file, with words that change
// it: mxfp8+e5m2, bf16+optimizer.lr=3e-3.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// Arm is one way to train. Its name is that of a folder.
type Arm struct {
	Name  string
	About string

	precision string
	file      string   // text of a recipe file; empty: the precision is a built-in one
	words     []string // that follow the precision
}

// null is the word of an arm that differs in rounding alone: the learning rate is one FP32 unit
// higher.
const null = "null"

// shortWords are names of settings with a value.
var shortWords = map[string][]string{
	"e5m2": {"mx.gradient=e5m2"}, "floor": {"mx.scale=floor"}, "ceil": {"mx.scale=ceil"}, "even": {"mx.scale=even"},
	"wire": {"ep_dispatch=mxfp8", "ep_combine_backward=mxfp8"}, "standard": {"ep_exchange=standard"},
	"exact": {"sum=exact"}, "h100": {"sum=h100"}, "h100-nopromotion": {"sum=h100-nopromotion"}, "b200": {"sum=b200"},
	"bf16-moments": {"optimizer.moments=bf16"}, "muon": {"optimizer.name=muon"},
	"no-rht": {"nvfp4.rht=false"}, "no-stochastic": {"nvfp4.stochastic=false"}, "no-2d": {"nvfp4.2d=false"},
	"no-bf16-tail": {"nvfp4.bf16_tail=0.0"},
	"pow2":         {"fp8.scale=pow2"}, "128x128-gradients": {"fp8.gradient=128x128"},
	"forward-only": {"mxfp4.products=forward"}, "dgrad-only": {"mxfp4.products=dgrad"}, "wgrad-only": {"mxfp4.products=wgrad"},
	"hadamard": {"mxfp4.hadamard=plain"}, "rht": {"mxfp4.hadamard=signs"}, "stochastic": {"mxfp4.stochastic=true"},
	null: {"optimizer.lr one FP32 unit higher"},
}

// common are the settings that arms have in common, because losses could not be compared otherwise.
var common = strings.Fields("flavor steps seq seed init_from out data data_field data_rules tokenizer end_token " +
	"model.vocab eval_sequences eval_every record_every log_every precision recipe")

// assignment is a word with a setting and its value, both fit for the name of a folder.
var assignment = regexp.MustCompile(`^([a-z][a-z0-9._-]*)=([A-Za-z0-9.-][A-Za-z0-9._:|-]{0,63})$`)

// ParseArms returns the arms of a list of names, joined by commas. The first one is the baseline.
func ParseArms(list string) (all []Arm, err error) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil, errors.New("a precision has no name: give names joined by commas, such as bf16,mxfp8")
		}
		words := strings.Split(name, "+")
		a, err := plainArm(words[0])
		for _, word := range words[1:] {
			if err == nil {
				a, err = a.with(word)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// plainArm returns a built-in precision or a recipe file as an arm.
func plainArm(word string) (Arm, error) {
	if !strings.HasSuffix(word, ".toml") {
		p, err := moe.PrecisionByName(word)
		return Arm{Name: p.Name, About: p.About, precision: p.Name}, err
	}
	c := config.Config{RecipeFile: word}
	if err := c.ReadRecipe(); err != nil {
		return Arm{}, err
	}
	p, err := c.Recipe()
	return Arm{Name: p.Name, About: p.About, precision: c.Precision, file: c.RecipeFile}, err
}

// with returns the arm with one more word.
func (a Arm) with(word string) (Arm, error) {
	a.Name, a.About = a.Name+"+"+word, a.About+", "+strings.Join(settings(word), ", ")
	a.words = append(slices.Clip(a.words), word)
	return a, a.apply(new(config.Config))
}

// Null returns the null arm of a baseline. Differences like its are what chance makes, and a
// comparison that calls it different is wrong.
func (a Arm) Null() Arm {
	a, err := a.with(null)
	if err != nil {
		panic(err)
	}
	return a
}

// apply changes a configuration to that of the arm.
func (a Arm) apply(cfg *config.Config) error {
	cfg.Precision, cfg.RecipeFile = a.precision, a.file
	for _, word := range a.words {
		if word == null {
			cfg.Optimizer.LR = float64(math.Nextafter32(float32(cfg.Optimizer.LR), math.MaxFloat32))
			continue
		}
		for _, set := range settings(word) {
			if err := assign(cfg, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// settings returns the settings that a word stands for.
func settings(word string) []string {
	if short := shortWords[word]; short != nil {
		return short
	}
	return []string{word}
}

// assign changes a setting of a configuration: optimizer.lr=3e-3.
func assign(cfg *config.Config, word string) error {
	m := assignment.FindStringSubmatch(word)
	if m == nil {
		return fmt.Errorf("%q is neither a setting with a value, such as optimizer.lr=3e-3, nor one of %s", word, ShortNames())
	}
	key := strings.ReplaceAll(m[1], "-", "_")
	if slices.Contains(common, key) {
		return fmt.Errorf("all arms have the same %s: make one comparison for each", key)
	}
	if stricttoml.Unmarshal([]byte(key+" = "+m[2]), cfg) == nil {
		return nil
	}
	err := stricttoml.Unmarshal([]byte(key+" = '"+m[2]+"'"), cfg)
	if unknown := (*stricttoml.KeyError)(nil); errors.As(err, &unknown) {
		return fmt.Errorf("there is no setting %q: launcher help compare --all lists them", key)
	} else if err != nil {
		return fmt.Errorf("%s takes no %q", key, m[2])
	}
	return nil
}

// ShortNames lists the words that stand for settings of an arm.
func ShortNames() string {
	return strings.Join(slices.Sorted(maps.Keys(shortWords)), ", ")
}

// checkArms returns an error if two arms are the same run, or if a word changes nothing, as one for
// another precision does.
func (c *Comparison) checkArms() error {
	seen := map[string]string{}
	for _, a := range c.Arms {
		essence, err := c.essence(a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		for i, word := range a.words {
			without := a
			without.words = slices.Delete(slices.Clone(a.words), i, i+1)
			if other, err := c.essence(without); err == nil && other == essence {
				return fmt.Errorf("%s: %s changes nothing: leave it out", a.Name, word)
			}
		}
		if other := seen[essence]; other != "" {
			return fmt.Errorf("%s and %s are the same run: leave one out", other, a.Name)
		}
		seen[essence] = a.Name
	}
	return nil
}

// essence is everything that the losses of an arm depend on, as text.
func (c *Comparison) essence(a Arm) (string, error) {
	cfg := c.config(a, c.Config.Seed)
	precision, err := cfg.Recipe()
	if err != nil {
		return "", err
	}
	cfg.Out, cfg.Precision, cfg.RecipeFile, cfg.MX, cfg.Options = "", "", "", config.MX{}, moe.Options{}
	others, err := config.TOML(cfg)
	numbers, failed := json.Marshal(precision)
	return string(others) + string(numbers), errors.Join(err, failed)
}
