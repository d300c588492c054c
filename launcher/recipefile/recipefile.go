// Package recipefile reads and writes low-precision recipes as TOML: a format and a rounding for
// each operand of the three products of a layer.
package recipefile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

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

// Text returns a text that describes a recipe, with comments.
func Text(p moe.Precision) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# %s: %s.
#
# Formats: %s.
# rounding: nearest or stochastic. scale, of formats with powers of two: rceil, floor, ceil or even.
# hadamard: points of the random Hadamard transform, the same for both operands of a product;
# no_signs: the transform without random signs.
# three_quarters: elements times 3/4.
# A product without operands is computed in BF16. sum: fp32, exact, h100 or b200.
#
# A group of layers may have a table of its own, after all others. The last one that selects a layer
# counts. Without operands, its layers are in BF16:
#   [[layers]]
#   select = "attention, last 15 %%"
# select: attention, dense, shared, experts or mtp_join; layers counted from 0, such as 4, 0-3,
# first 2 or last 15 %%; or both.
name = %q

# Layers at the beginning and at the end in BF16, and at the end as a share of all, rounded up.
plain_first = %d
plain_last = %d
plain_tail = %v
`, p.Name, p.About, formatNames(), p.Name, p.PlainFirst, p.PlainLast, p.PlainTail)
	if p.Linears != nil {
		b.WriteString("\n# Projections of attention, dense FFN and shared experts.\n[linears]\n")
		writeRecipe(&b, p.Linears)
	}
	if p.Experts != nil {
		b.WriteString("\n# Routed experts.\n[experts]\n")
		writeRecipe(&b, p.Experts)
	}
	for _, rule := range p.Layers {
		fmt.Fprintf(&b, "\n[[layers]]\nselect = %q\n", rule.Select)
		if rule.Recipe != nil {
			writeRecipe(&b, rule.Recipe)
		}
	}
	return b.String()
}

func writeRecipe(b *strings.Builder, r *moe.Recipe) {
	fmt.Fprintf(b, "sum = %q\n", r.Sum)
	for _, at := range places(new(layers), r) {
		if at.cast.Quantizes() {
			fmt.Fprintf(b, "%s = { %s }\n", at.key, inWords(*at.cast))
		}
	}
}

// inWords returns a cast as the keys of an operand.
func inWords(c mx.Cast) string {
	words := []string{fmt.Sprintf("format = %q", c.Format.Name), fmt.Sprintf("rounding = %q", c.Rounding)}
	if c.Format.Scale == mx.ScaleE8M0 {
		words = append(words, fmt.Sprintf("scale = %q", c.Mode))
	}
	if c.Format.Hadamard > 0 {
		words = append(words, fmt.Sprintf("hadamard = %d", c.Format.Hadamard))
	}
	if c.Format.NoSigns {
		words = append(words, "no_signs = true")
	}
	if c.Format.Shrink {
		words = append(words, "three_quarters = true")
	}
	return strings.Join(words, ", ")
}

func formatNames() string {
	var names []string
	for _, f := range mx.Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
