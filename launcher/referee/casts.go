package referee

import (
	"maps"
	"slices"
	"strings"

	"spmoe/moe/reference"
)

// operands are what a mistake in a cast to 8 bits is about: operands by product, as in a Recipe.
var operands = []struct {
	name string
	at   [][2]int
}{
	{"the input", [][2]int{{0, 0}, {2, 1}}},
	{"the weight", [][2]int{{0, 1}, {1, 1}}},
	{"the output gradient", [][2]int{{1, 0}, {2, 0}}},
	{"the input in forward", [][2]int{{0, 0}}},
	{"the weight in forward", [][2]int{{0, 1}}},
	{"the output gradient in dgrad", [][2]int{{1, 0}}},
	{"the weight in dgrad", [][2]int{{1, 1}}},
	{"the output gradient in wgrad", [][2]int{{2, 0}}},
	{"the input in wgrad", [][2]int{{2, 1}}},
	{"both operands of forward", [][2]int{{0, 0}, {0, 1}}},
	{"both operands of dgrad", [][2]int{{1, 0}, {1, 1}}},
	{"both operands of wgrad", [][2]int{{2, 0}, {2, 1}}},
	{"each operand", [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}},
}

// changes are what is wrong with the cast of an operand.
var changes = []struct {
	name, says string
	of         func(c reference.Cast) reference.Cast
}{
	{"off", "no cast to 8 bits", func(c reference.Cast) reference.Cast { return reference.Cast{Off: true} }},
	{"e4m3", "E4M3", func(c reference.Cast) reference.Cast { c.E5M2 = false; return c }},
	{"e5m2", "E5M2", func(c reference.Cast) reference.Cast { c.E5M2 = true; return c }},
	{"other_axis", "scales along the other axis", func(c reference.Cast) reference.Cast {
		c.Block[0], c.Block[1] = c.Block[1], c.Block[0]
		return c
	}},
	{"one_scale", "one scale", func(c reference.Cast) reference.Cast { c.Block = [2]int{}; return c }},
	{"rows", "a scale per row", func(c reference.Cast) reference.Cast { c.Block = [2]int{1, 0}; return c }},
	{"blocks", "a scale per 1x128", func(c reference.Cast) reference.Cast { c.Block = [2]int{1, 128}; return c }},
	{"scale_free", "scales that are no powers of two", func(c reference.Cast) reference.Cast { c.Scale = reference.Free; return c }},
	{"scale_up", "scales that are rounded up to powers of two", func(c reference.Cast) reference.Cast { c.Scale = reference.Ceil; return c }},
	{"scale_floor", "scales by OCP's rule, which saturates", func(c reference.Cast) reference.Cast { c.Scale = reference.Floor; return c }},
}

// casts returns hypotheses of a linear layer: its operands are cast to 8 bits, or not, in another
// way than step.json says.
func (j *judge) casts(t *trial) (all []hypothesis) {
	if t.module.Kind != reference.Linear {
		return nil
	}
	stated, tried := j.recipe(t.module.Path), []reference.Recipe{}
	add := func(name, says string, q *reference.Recipe) {
		all = append(all, hypothesis{name: name, says: says, change: func(c *reference.Call) {
			c.Rounding.Recipe = func(string) *reference.Recipe { return q }
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(reference.Recipes)) {
		add("fp8_"+name, "its products are those of the FP8 recipe "+name, reference.Recipes[name])
	}
	if stated == nil {
		return all
	}
	add("fp8_missing", "its operands are not cast to 8 bits", nil)
	tried = append(tried, *stated)
	for _, o := range operands {
		for _, change := range changes {
			q := *stated
			for _, at := range o.at {
				q[at[0]][at[1]] = change.of(q[at[0]][at[1]])
			}
			if !slices.Contains(tried, q) {
				tried = append(tried, q)
				name := strings.ReplaceAll(strings.TrimPrefix(o.name, "the "), " ", "_")
				add("fp8_"+name+"_"+change.name, "FP8: "+change.says+" for "+o.name, &q)
			}
		}
	}
	return all
}
