package convergence

// Recipes: the difference between arms, which is a precision and its modifiers.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// Recipe is one way to train. Its name is a precision and modifiers, joined by +: mxfp8+e5m2+floor.
type Recipe struct {
	Name  string
	About string

	precision string
	file      string // text of a recipe file; empty: the precision is a built-in one
	modifiers []modifier
	settings  []Setting // applied before the modifiers
}

// modifier changes one setting of a precision.
type modifier struct {
	name, about string
	setting     string // two modifiers of one setting exclude each other
	quantized   bool   // applies only to precisions that quantize
	only        string // the only precision that it applies to; empty: any
	apply       func(*config.Config)
}

func modifiers() []modifier {
	scale := func(rule string) modifier {
		return modifier{rule, "block scales by " + strings.ToUpper(rule), "scale rule", true, "", func(c *config.Config) { c.MX.Scale = rule }}
	}
	sum := func(name, about string) modifier {
		return modifier{name, about, "sum", false, "", func(c *config.Config) { c.Sum = name }}
	}
	return append([]modifier{
		{"e5m2", "gradients in E5M2", "gradient format", true, "", func(c *config.Config) { c.MX.Gradient = "e5m2" }},
		scale("floor"), scale("ceil"), scale("even"),
		{"wire", "MXFP8 between ranks", "exchange", false, "", func(c *config.Config) { c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8" }},
		{"standard", "two-sided exchange", "exchange", false, "", func(c *config.Config) { c.EPExchange = "standard" }},
		sum("h100", "sums of an H100's tensor cores"), sum("h100-nopromotion", "sums of an H100 in one chain"), sum("b200", "sums of a B200's tensor cores"),
		{"bf16-moments", "AdamW's moments in BF16", "type of the moments", false, "", func(c *config.Config) { c.Optimizer.Moments = moe.MomentsBF16 }},
		{"muon", "Muon for matrices", "optimizer", false, "", func(c *config.Config) { c.Optimizer.Name = "muon" }},
		{"null", "the learning rate one FP32 unit higher, which must make no difference", "last place of the rate", false, "", func(c *config.Config) {
			c.Optimizer.LR = float64(math.Nextafter32(float32(c.Optimizer.LR), 1))
		}},
	}, ablations()...)
}

// ablations returns the modifiers of single recipes.
func ablations() []modifier {
	of := func(precision, name, about, setting string, apply func(*moe.Options)) modifier {
		return modifier{name, about, setting, true, precision, func(c *config.Config) { apply(&c.Options) }}
	}
	const mxfp4 = "mxfp4-e2m1"
	return []modifier{
		of("nvfp4", "no-rht", "no Hadamard transform", "transform", func(o *moe.Options) { o.NVFP4.RHT = false }),
		of("nvfp4", "no-stochastic", "gradients rounded to nearest", "rounding", func(o *moe.Options) { o.NVFP4.Stochastic = false }),
		of("nvfp4", "no-2d", "weights in rows of 16", "blocks of weights", func(o *moe.Options) { o.NVFP4.Squares = false }),
		of("nvfp4", "no-bf16-tail", "no layers in BF16", "last layers", func(o *moe.Options) { o.NVFP4.BF16Tail = 0 }),
		of("nvfp4", "four-over-six", "4/6 for inputs and weights", "candidates of scales", func(o *moe.Options) { o.NVFP4.FourOverSix = true }),
		of("nvfp4", "exact", "exact sums", "sum", func(o *moe.Options) { o.Sum = "exact" }),
		of("fp8-block", "pow2", "scales that are powers of two", "scale", func(o *moe.Options) { o.FP8.Scale = "pow2" }),
		of("fp8-block", "128x128-gradients", "gradients in blocks of 128x128", "blocks of gradients", func(o *moe.Options) { o.FP8.Gradient = "128x128" }),
		of(mxfp4, "forward-only", "backward in BF16", "products", func(o *moe.Options) { o.MXFP4.Products = "forward" }),
		of(mxfp4, "dgrad-only", "forward and wgrad in BF16", "products", func(o *moe.Options) { o.MXFP4.Products = "dgrad" }),
		of(mxfp4, "wgrad-only", "forward and dgrad in BF16", "products", func(o *moe.Options) { o.MXFP4.Products = "wgrad" }),
		of(mxfp4, "hadamard", "a Hadamard transform of 16 points", "transform", func(o *moe.Options) { o.MXFP4.Hadamard = "plain" }),
		of(mxfp4, "rht", "a Hadamard transform of 16 points with random but fixed signs", "transform", func(o *moe.Options) { o.MXFP4.Hadamard = "signs" }),
		of(mxfp4, "stochastic", "gradients rounded stochastically", "rounding", func(o *moe.Options) { o.MXFP4.Stochastic = true }),
	}
}

// base returns a recipe without modifiers: a built-in precision, or a recipe file.
func base(word string) (r Recipe, p moe.Precision, err error) {
	if !strings.HasSuffix(word, ".toml") {
		p, err = moe.PrecisionByName(word)
		return Recipe{precision: p.Name, About: p.About}, p, err
	}
	c := config.Config{RecipeFile: word}
	if err = c.ReadRecipe(); err == nil {
		p, err = c.Recipe()
	}
	return Recipe{precision: c.Precision, About: p.About, file: c.RecipeFile}, p, err
}

// ParseRecipe returns the recipe with a name. The name begins with a precision or a recipe file.
// Modifiers may have any order; the name of the result has them in a fixed one.
func ParseRecipe(name string) (Recipe, error) {
	words := strings.Split(name, "+")
	r, precision, err := base(words[0])
	if err != nil {
		return Recipe{}, fmt.Errorf("%q: %w, and modifiers joined by +: %s", name, err, modifierNames())
	}
	for _, word := range words[1:] {
		if i := slices.IndexFunc(modifiers(), func(m modifier) bool { return m.name == word }); i < 0 {
			return r, fmt.Errorf("%q: unknown modifier %q: use %s", name, word, modifierNames())
		}
	}
	names, set := []string{precision.Name}, map[string]string{}
	for _, m := range modifiers() {
		times := 0
		for _, word := range words[1:] {
			if word == m.name {
				times++
			}
		}
		switch other, taken := set[m.setting]; {
		case times == 0:
			continue
		case times > 1:
			return r, fmt.Errorf("%q: %s is given twice", name, m.name)
		case taken:
			return r, fmt.Errorf("%q: %s and %s both set the %s: use one of them", name, other, m.name, m.setting)
		case m.quantized && !precision.Quantizes():
			return r, fmt.Errorf("%q: %s has no effect on %s, which quantizes nothing", name, m.name, precision.Name)
		}
		if m.only != "" && m.only != precision.Name || r.file != "" && m.quantized {
			return r, fmt.Errorf("%q: %s has no effect on %s", name, m.name, precision.Name)
		}
		set[m.setting] = m.name
		r.modifiers = append(r.modifiers, m)
		names = append(names, m.name)
		r.About += ", " + m.about
	}
	r.Name = strings.Join(names, "+")
	return r, nil
}

func modifierNames() string {
	var names []string
	for _, m := range modifiers() {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// ParseRecipes returns the recipes of a list of names, joined by commas: the baseline and the
// recipes to compare with it.
func ParseRecipes(names string) ([]Recipe, error) {
	all, err := parseRecipes(names)
	if err == nil && len(all) < 2 {
		err = fmt.Errorf("%q is one recipe: give the baseline and at least one other, such as bf16,mxfp8", names)
	}
	return all, err
}

// parseRecipes is ParseRecipes that accepts a baseline alone.
func parseRecipes(names string) (all []Recipe, err error) {
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil, errors.New("a recipe has no name: give names joined by commas, such as bf16,mxfp8")
		}
		r, err := ParseRecipe(name)
		if err != nil {
			return nil, err
		}
		if indexOf(all, r.Name) >= 0 {
			return nil, fmt.Errorf("%s is given twice", r.Name)
		}
		all = append(all, r)
	}
	return all, nil
}

func indexOf(all []Recipe, name string) int {
	return slices.IndexFunc(all, func(r Recipe) bool { return r.Name == name })
}

// apply changes a configuration to that of the recipe.
func (r Recipe) apply(cfg *config.Config) {
	cfg.Precision, cfg.RecipeFile = r.precision, r.file
	for _, s := range r.settings {
		s.Apply(cfg)
	}
	for _, m := range r.modifiers {
		m.apply(cfg)
	}
}
