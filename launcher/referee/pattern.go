package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/moe/reference"
)

// pattern says what a wrong output plainly is if no known mistake explains it: the right one times
// a factor, a sum of other terms, or wrong only in some heads, some channels or the tokens of one
// expert.
func (t *trial) pattern(line *ModuleLine) (causes []Cause) {
	label := t.module.Outputs[0].Label()
	out, want, c := t.held[label], t.exact[label].Data, line.worst("output")
	switch {
	case out == nil || c == nil || !c.Wrong() || len(out.Data) != len(want) || len(want)%t.tokens != 0:
		return nil
	case c.Scaled && c.Factor != 0:
		return []Cause{{Name: "factor", Says: fmt.Sprintf("a factor: the output is %s × the right one", factorText(c.Factor))}}
	case t.module.Kind == reference.Residual:
		return t.otherTerms(out.Data, want, *c)
	}
	kind, count := "channel", len(want)/t.tokens
	if t.module.Kind == reference.Core {
		kind, count = "head", t.judge.folder.Model.Heads
	}
	width := len(want) / t.tokens / count
	errors := func(x []float64) []float64 { // squared, of each head or channel
		all := make([]float64, count)
		for i, y := range want {
			all[i/width%count] += (x[i] - y) * (x[i] - y)
		}
		return all
	}
	floors, zero := make([]float64, count), errors(make([]float64, len(want)))
	for _, f := range t.floors {
		for i, e := range errors(f[label].Data) {
			floors[i] = max(floors[i], e)
		}
	}
	var wrong []int
	says, nothing := "", true
	for i, e := range errors(out.Data) {
		if e > worstBound*worstBound*floors[i] {
			wrong = append(wrong, i)
			nothing = nothing && math.Abs(e-zero[i]) < 1e-6*e
		}
	}
	if says = fmt.Sprintf("of %d %ss, only these are wrong (counted from 0): %s", count, kind, joinInts(wrong)); nothing {
		says += "; they are zero"
	}
	if n := len(wrong); n > 0 && (2*n <= count || n < count && kind == "head") {
		causes = append(causes, Cause{Name: kind + "s:" + joinInts(wrong), Says: says})
	}
	if far := t.far(line, "output"); t.module.Kind == reference.Experts && len(far) > 0 {
		chosen, _ := t.call.Given(t.layerPath() + "mlp.gate.indices")
		k, e := len(chosen.Data)/t.tokens, t.suspects(line)[0]
		other := func(token int) bool { return !slices.Contains(chosen.Data[token*k:(token+1)*k], float64(e)) }
		if !slices.ContainsFunc(far, other) {
			causes = append(causes, Cause{Name: fmt.Sprintf("expert:%d", e), Says: fmt.Sprintf("only tokens of expert %d are wrong", e)})
		}
	}
	return causes
}

// otherTerms says which sum a residual is: of its terms with factors, or of one term more, which is
// another tensor of the layer.
func (t *trial) otherTerms(got, want []float64, c Comparison) []Cause {
	for _, extra := range []string{"none", "input", "self_attn.output", "hidden", "mlp.output"} {
		var names []string
		var terms [][]float64
		for _, p := range append(slices.Clone(t.module.Inputs), reference.Port{Name: t.layerPath() + extra}) {
			if v, err := t.read(p); err == nil && v != nil && len(v.Data) == len(got) && p.Name != t.module.Outputs[0].Name {
				names, terms = append(names, p.Label()), append(terms, v.Data)
			}
		}
		if a, rest, ok := solve(got, terms); ok && c.within(rest) && 4*rest*normOf(got, nil) < distance(got, want, nil) {
			for i := range names {
				names[i] = factorText(a[i]) + " × " + names[i]
			}
			says := "the sum has other factors, or one term more, as a residual that counts twice: it is "
			return []Cause{{Name: "sum_other", Says: says + strings.Join(names, " + ")}}
		}
	}
	return nil
}
