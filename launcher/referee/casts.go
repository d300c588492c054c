package referee

import (
	"maps"
	"slices"
	"strings"

	"spmoe/moe/reference"
)

// castOperands are what a mistake in a cast is about: operands by product, as in a Recipe.
var castOperands = []struct {
	name string
	at   [][2]int
}{
	{"input", [][2]int{{0, 0}, {2, 1}}},
	{"weight", [][2]int{{0, 1}, {1, 1}}},
	{"output gradient", [][2]int{{1, 0}, {2, 0}}},
	{"input in forward", [][2]int{{0, 0}}},
	{"weight in forward", [][2]int{{0, 1}}},
	{"output gradient in dgrad", [][2]int{{1, 0}}},
	{"weight in dgrad", [][2]int{{1, 1}}},
	{"output gradient in wgrad", [][2]int{{2, 0}}},
	{"input in wgrad", [][2]int{{2, 1}}},
	{"operands of forward", [][2]int{{0, 0}, {0, 1}}},
	{"operands of dgrad", [][2]int{{1, 0}, {1, 1}}},
	{"operands of wgrad", [][2]int{{2, 0}, {2, 1}}},
	{"operands of all products", [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}},
}

// castMistakes are what may be wrong with the cast of an operand.
var castMistakes = []struct {
	name, says string
	make       func(c *reference.Cast)
}{
	{"off", "no cast to 8 bits", func(c *reference.Cast) { *c = reference.Cast{Off: true} }},
	{"other_type", "the other type of 8 bits, E5M2 or E4M3,", func(c *reference.Cast) { c.E5M2 = !c.E5M2 }},
	{"other_axis", "scales along the other axis", func(c *reference.Cast) { c.Block[0], c.Block[1] = c.Block[1], c.Block[0] }},
	{"one_scale", "one scale", func(c *reference.Cast) { c.Block = [2]int{} }},
	{"row_scales", "a scale per row", func(c *reference.Cast) { c.Block = [2]int{1, 0} }},
	{"block_scales", "a scale per 1x128 elements", func(c *reference.Cast) { c.Block = [2]int{1, 128} }},
	{"free_scales", "scales that are no powers of two", func(c *reference.Cast) { c.Scale = reference.Free }},
	{"ceil_scales", "scales that are rounded up to powers of two", func(c *reference.Cast) { c.Scale = reference.Ceil }},
	{"floor_scales", "scales by OCP's rule, under which the largest values saturate,", func(c *reference.Cast) { c.Scale = reference.Floor }},
}

// casts returns hypotheses of a linear layer: its operands are cast to 8 bits, or not, in another
// way than step.json says.
func (j *judge) casts(t *trial, line *ModuleLine) (all []hypothesis) {
	if t.module.Kind != reference.Linear {
		return nil
	}
	add := func(name, says string, q *reference.Recipe) {
		all = append(all, hypothesis{name: "fp8_" + name, says: "FP8: " + says, change: func(c *reference.Call) {
			c.Rounding.Recipe = func(string) *reference.Recipe { return q }
		}})
	}
	stated, wrong := j.recipe(t.module.Path), []int{} // products
	for product, what := range []string{"output", "grad_input", "gradient"} {
		if len(line.wrong(what)) > 0 {
			wrong = append(wrong, product)
		}
	}
	if slices.Contains(wrong, 0) {
		for _, name := range slices.Sorted(maps.Keys(reference.Recipes)) {
			add(name, "the recipe is "+name, reference.Recipes[name])
		}
		add("missing", "no operand is cast to 8 bits", nil)
	}
	if stated == nil {
		return all
	}
	for _, o := range castOperands {
		for _, mistake := range castMistakes {
			q := *stated
			for _, at := range o.at {
				mistake.make(&q[at[0]][at[1]])
			}
			if !slices.ContainsFunc(wrong, func(product int) bool { return q[product] == stated[product] }) {
				add(strings.ReplaceAll(o.name, " ", "_")+"_"+mistake.name, mistake.says+" for the "+o.name, &q)
			}
		}
	}
	return all
}
