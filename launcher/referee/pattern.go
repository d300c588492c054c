package referee

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// A wrong output that no known mistake explains may still have a plain pattern: a factor, other
// terms of a sum, or some heads, channels or experts that are wrong alone.

// pattern returns what the wrong output of a module plainly is; nil: nothing plain.
func (t *trial) pattern(line *ModuleLine) *Cause {
	out := t.held[t.module.Outputs[0].Label()]
	c := line.worst("output")
	if out == nil || c == nil || !c.Wrong() || len(out.Data) != len(t.exact[t.module.Outputs[0].Label()].Data) {
		return nil
	}
	switch {
	case c.Scaled && c.Factor != 0:
		f := factorText(c.Factor)
		return &Cause{Name: "factor:" + f, Says: fmt.Sprintf("a factor: the output is %s × the right one", f)}
	case t.module.Kind == reference.Residual:
		return t.otherTerms(out.Data, *c)
	case t.module.Kind == reference.Core:
		return t.wrongHeads(out.Data, *c)
	}
	return nil
}

// otherTerms says which sum a residual is: of its terms with factors, or of one term more, which is
// another tensor of the layer.
func (t *trial) otherTerms(got []float64, c Comparison) *Cause {
	var terms []part
	for _, p := range t.module.Inputs {
		terms = append(terms, part{name: p.Label(), values: t.held[p.Label()].Data})
	}
	extras := []part{{}} // none
	for _, name := range []string{"input", "input_layernorm.output", "self_attn.output", "hidden", "post_attention_layernorm.output", "mlp.output"} {
		name = t.judge.find(t.layerPath()+name, t.repeat)
		if v, err := t.judge.folder.Read(step.Activations, name, t.repeat); err == nil && !t.module.OfGradients && len(v.Data) == len(got) {
			extras = append(extras, part{name: name, values: v.Data})
		}
	}
	for _, extra := range extras {
		parts := terms
		if extra.values != nil {
			parts = append(slices.Clone(terms), extra)
		}
		var values [][]float64
		for _, p := range parts {
			values = append(values, p.values)
		}
		a, rest, ok := solve(got, values)
		if !ok || !c.within(rest) {
			continue
		}
		var texts []string
		for i, p := range parts {
			texts = append(texts, factorText(a[i])+" × "+p.name)
		}
		says := "the sum has other factors"
		if extra.values != nil {
			says = "the sum has one term more, as a residual that counts twice"
		}
		return &Cause{Name: "sum_other", Says: says + ": it is " + strings.Join(texts, " + ")}
	}
	return nil
}

// wrongHeads says which heads of attention are wrong, if some are right or if they are permuted.
func (t *trial) wrongHeads(got []float64, c Comparison) *Cause {
	heads, label := t.judge.folder.Model.Heads, t.module.Outputs[0].Label()
	width := len(got) / t.tokens / heads
	columns := func(x []float64, h int) (part []float64) {
		for at := h * width; at < len(x); at += heads * width {
			part = append(part, x[at:at+width]...)
		}
		return part
	}
	off := func(x, y []float64) float64 { return distance(x, y, nil) / max(normOf(y, nil), tiny) }
	var wrong []int
	var texts []string
	for h := range heads {
		mine, want := columns(got, h), columns(t.exact[label].Data, h)
		floor := c.Floor
		for _, f := range t.floors {
			floor = max(floor, off(columns(f[label].Data, h), want))
		}
		if off(mine, want) <= wholeBound*floor {
			continue
		}
		wrong = append(wrong, h)
		if normOf(mine, nil) == 0 {
			texts = append(texts, fmt.Sprintf("head %d is zero", h))
		}
		for other := range heads {
			if other != h && off(mine, columns(t.exact[label].Data, other)) <= wholeBound*floor {
				texts = append(texts, fmt.Sprintf("head %d is what head %d should be", h, other))
			}
		}
	}
	if len(wrong) == 0 || len(wrong) == heads && len(texts) < heads {
		return nil
	}
	says := fmt.Sprintf("%d of %d heads are wrong, the others are right: %s", len(wrong), heads, joinInts(wrong))
	return &Cause{Name: "heads:" + strings.ReplaceAll(joinInts(wrong), " ", ""), Says: strings.Join(append([]string{says}, texts[:min(4, len(texts))]...), "; ")}
}

// wrongPlaces says whether all that is wrong lies in a few channels, or in the tokens of one expert.
func (t *trial) wrongPlaces(line *ModuleLine) *Cause {
	out, want := t.held[t.module.Outputs[0].Label()], t.exact[t.module.Outputs[0].Label()]
	chosen, routed := t.call.Given(t.layerPath() + "mlp.gate.indices")
	if out == nil || len(line.wrong("output")) == 0 || len(want.Data) != len(out.Data) || len(out.Data)%t.tokens != 0 {
		return nil
	}
	errors, total := make([]float64, len(out.Data)/t.tokens), 0.0
	for i, x := range out.Data {
		square := (x - want.Data[i]) * (x - want.Data[i])
		errors[i%len(errors)] += square
		total += square
	}
	var says []string
	if worst := descending(errors)[0]; errors[worst] > 0.8*total && len(errors) > 8 {
		says = append(says, fmt.Sprintf("channel %d", worst))
	}
	far, count, hit := t.far(line, "output"), map[int]int{}, map[int]int{}
	for i, e := range chosen.Data {
		count[int(e)]++
		if slices.Contains(far, i*t.tokens/len(chosen.Data)) {
			hit[int(e)]++
		}
	}
	for e, n := range hit {
		if routed && t.module.Kind == reference.Experts && n == len(far) && float64(n) > 0.6*float64(count[e]) {
			says = append(says, fmt.Sprintf("the tokens of expert %d", e))
		}
	}
	if len(says) == 0 {
		return nil
	}
	text := strings.Join(says, " and ")
	return &Cause{Name: "only:" + strings.ReplaceAll(text, " ", "_"), Says: "the error is only in " + text}
}
