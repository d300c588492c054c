// Package recipefile reads low-precision recipes as TOML: a format and a rounding for
// each operand of the three products of a layer.
package recipefile

import (
	"errors"
	"fmt"
	"regexp"

	"spmoe/internal/stricttoml"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
)

// file is the whole text.
type file struct {
	Name       string  `toml:"name"`
	PlainFirst int     `toml:"plain_first"`
	PlainLast  int     `toml:"plain_last"`
	PlainTail  float64 `toml:"plain_tail"`
	Linears    layers  `toml:"linears"`
	Experts    layers  `toml:"experts"`
	Layers     []group `toml:"layers"`
}

// group is some layers with a recipe of their own. Without products they are not quantized.
type group struct {
	Select string `toml:"select"`
	layers
}

// layers is a group of layers: the routed experts, or all other linear layers.
type layers struct {
	Sum     string `toml:"sum"`
	Forward struct {
		Input  operand `toml:"input"`
		Weight operand `toml:"weight"`
	} `toml:"forward"`
	Dgrad struct {
		Gradient operand `toml:"gradient"`
		Weight   operand `toml:"weight"`
	} `toml:"dgrad"`
	Wgrad struct {
		Gradient operand `toml:"gradient"`
		Input    operand `toml:"input"`
	} `toml:"wgrad"`
}

// place is an operand of a product, in words and in a recipe.
type place struct {
	key  string
	word *operand
	cast *mx.Cast
}

func places(l *layers, r *moe.Recipe) []place {
	return []place{
		{"forward.input", &l.Forward.Input, &r.Forward.Left}, {"forward.weight", &l.Forward.Weight, &r.Forward.Right},
		{"dgrad.gradient", &l.Dgrad.Gradient, &r.Dgrad.Left}, {"dgrad.weight", &l.Dgrad.Weight, &r.Dgrad.Right},
		{"wgrad.gradient", &l.Wgrad.Gradient, &r.Wgrad.Left}, {"wgrad.input", &l.Wgrad.Input, &r.Wgrad.Right},
	}
}

// operand is an mx.Cast in words. An empty word is the default.
type operand struct {
	Format        string `toml:"format"`
	Rounding      string `toml:"rounding"`
	Scale         string `toml:"scale"`
	Hadamard      int    `toml:"hadamard"`
	NoSigns       bool   `toml:"no_signs"`
	ThreeQuarters bool   `toml:"three_quarters"`
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Parse returns the recipe that a text describes.
func Parse(text string) (p moe.Precision, err error) {
	var f file
	if err := stricttoml.Unmarshal([]byte(text), &f); err != nil {
		return p, err
	}
	if !validName.MatchString(f.Name) {
		return p, fmt.Errorf("name is %.100q: give a name of letters, digits, - and _", f.Name)
	}
	p = moe.Precision{Name: f.Name, About: "a recipe from a file", DType: tensor.BF16, PlainFirst: f.PlainFirst, PlainLast: f.PlainLast, PlainTail: f.PlainTail}
	errs := make([]error, 2, 2+len(f.Layers))
	p.Linears, errs[0] = f.Linears.recipe("linears")
	p.Experts, errs[1] = f.Experts.recipe("experts")
	for i, g := range f.Layers {
		rule, err := g.rule(i + 1)
		p.Layers, errs = append(p.Layers, rule), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	if !p.Quantizes() {
		return p, errors.New("no operand has a format: give both operands of a product one, or train in bf16")
	}
	return p, p.Validate()
}

// rule returns what number i of the groups of layers says.
func (g group) rule(i int) (r moe.LayerRecipe, err error) {
	if r.Select, err = moe.ParseSelection(g.Select); err != nil {
		return r, fmt.Errorf("layers number %d: select = %w", i, err)
	}
	r.Recipe, err = g.recipe(fmt.Sprintf("layers %q", g.Select))
	return r, err
}

// recipe returns the recipe of a group of layers; nil: nothing is quantized.
func (l layers) recipe(name string) (*moe.Recipe, error) {
	var r moe.Recipe
	var errs []error
	if l.Sum != "" {
		var err error
		if r.Sum, err = mx.ParseSum(l.Sum); err != nil {
			errs = append(errs, fmt.Errorf("%s.sum: %w", name, err))
		}
	}
	quantizes := false
	for _, at := range places(&l, &r) {
		var err error
		if *at.cast, err = at.word.cast(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: %w", name, at.key, err))
		}
		quantizes = quantizes || at.cast.Quantizes()
	}
	if !quantizes {
		return nil, errors.Join(errs...)
	}
	return &r, errors.Join(errs...)
}

// cast returns what an operand describes.
func (o operand) cast() (c mx.Cast, err error) {
	if o.Format == "" {
		if o != (operand{}) {
			return c, errors.New("it has no format: give one, or leave the operand out")
		}
		return c, nil
	}
	if c.Format, err = mx.ParseFormat(o.Format); err != nil {
		return c, err
	}
	c.Format.Hadamard, c.Format.NoSigns, c.Format.Shrink = o.Hadamard, o.NoSigns, o.ThreeQuarters
	if o.Rounding != "" {
		if c.Rounding, err = mx.ParseRounding(o.Rounding); err != nil {
			return c, err
		}
	}
	if o.Scale != "" {
		if c.Mode, err = mx.ParseScaleMode(o.Scale); err != nil {
			return c, err
		}
	}
	return c, c.Format.Validate()
}
