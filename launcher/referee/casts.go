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

// waysOfTies are those of code that rounds all ties of an operand in one way. The first three are
// of code that treats both operands alike.
var waysOfTies = [][2]float64{{0, 0}, {1, 1}, {-1, -1}, {0, 1}, {0, -1}, {1, 0}, {1, -1}, {-1, 0}, {-1, 1}}

// behindTies looks for a mistake in a cast that a wide floor hides. A scale of few bits puts up to
// a sixteenth of the elements between two values of the format: 1.7 % if a weight has one scale,
// where another axis or other blocks are 3.5 %. But code rounds all that share a scale in one way.
// Under one of these the products of right casts are known up to the rounding of results. So are
// those of a mistake, which is reported if it alone fits. Single rows may have ties of their own.
func (j *judge) behindTies(t *trial, line *ModuleLine) bool {
	wide := func(c Comparison) bool { return c.Floor > 2*t.least }
	if t.module.Kind != reference.Linear || j.recipe(t.module.Path) == nil || !slices.ContainsFunc(line.Comparisons, wide) {
		return false
	}
	stated := j.compareTied(t, hypothesis{}, t.call, line, len(waysOfTies))
	if len(stated.wrong()) == 0 {
		return false
	}
	few, inOutput := t.sample(stated, true), len(stated.wrong("output")) > 0
	far := t.missed(t.exact, few)
	for _, h := range j.casts(t, stated) {
		if inOutput && !(t.missUnder(h, few) < far) {
			continue
		}
		if len(j.compareTied(t, h, few, line, 3).wrong()) > 0 {
			continue
		}
		if fit := j.compareTied(t, h, t.call, line, 3).worst("output", "grad_input", "gradient"); !fit.Wrong() {
			line.Causes = []Cause{{h.name, h.says, fit.Strain}}
			line.add(stated.Comparisons)
			return true
		}
	}
	return false
}

// compareTied compares the trial under a hypothesis, each tensor under the one of the first ways of
// ties that fits it best: by its median row, or as a whole.
func (j *judge) compareTied(t *trial, h hypothesis, call reference.Call, line *ModuleLine, ways int) *ModuleLine {
	defer func() { t.ties = nil }()
	best := &ModuleLine{}
	for way := range ways {
		t.ties = &waysOfTies[way]
		all, err := j.compareUnder(t, h, call, line, 3)
		if err != nil {
			return &ModuleLine{Comparisons: []Comparison{misshapen("output", t.module.Path, err.Error())}}
		}
		for i, c := range all {
			if c.Error <= c.Resolution {
				c.Statistic, c.Strain = "median", c.Error/max(c.Resolution, tiny)
			}
			if way == 0 {
				best.Comparisons = append(best.Comparisons, c)
			} else if c.Strain < best.Comparisons[i].Strain {
				best.Comparisons[i] = c
			}
		}
		if len(best.wrong()) == 0 {
			break
		}
	}
	return best
}
