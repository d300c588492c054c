package referee

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// A wrong module is computed again under each known mistake. A mistake under which the reference
// agrees with the run explains it. That is first tried on few tokens, the worst among them; what
// survives is tried on all.

const (
	mostTried   = 256 // tokens
	mostNamed   = 4   // causes of a module
	survives    = 1.5 // strain on few tokens and one rounding
	leastStrain = 0.1 // of a run in the lower precision that it is said to have
)

// hypothesis is a change of a trial's call that may explain it.
type hypothesis struct {
	name, says string
	change     func(*reference.Call)
	ways       []reference.Rounding
}

// explain returns the causes under which the reference agrees with a wrong trial, best first.
func (j *judge) explain(t *trial, line *ModuleLine) (causes []Cause) {
	local, gone := false, false
	for _, c := range line.wrong() {
		local = local || c.What != "gradient"
		gone = gone || c.Scaled && c.Factor == 0
	}
	// If a weight's gradient alone is wrong, its module's backward pass is right. Only a gradient
	// that is missing may be a mistake of the module.
	if line.wrong()[0].Statistic == "shape" || !local && !(gone && len(j.repeats) == 1) {
		return nil
	}
	if cause := t.otherWeight(line); cause != nil {
		return []Cause{*cause}
	}
	few := t.sample(line, local)
	try := func(all []hypothesis) {
		for _, h := range all {
			if few != nil && !(j.strainUnder(t, h, few, line) <= survives) {
				continue
			}
			lower := h.ways[0].Format != t.ways[0].Format // its wider floor would hide anything small
			if s := j.strainUnder(t, h, nil, line); s <= 1 && !(lower && s < leastStrain) {
				causes = append(causes, Cause{h.name, h.says, s})
			}
		}
	}
	try(t.mistakes(line, local))
	if cause := t.lostChoices(); len(causes) == 0 && cause != nil {
		return []Cause{*cause}
	}
	if len(causes) == 0 && local {
		try(append(t.fitted(few, line), j.mixUps(t)...))
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return compareFloat(a.Strain, b.Strain) })
	return causes[:min(mostNamed, len(causes))]
}

// sample returns a call of few rows, the worst among them; nil: the trial is small, or needs all.
func (t *trial) sample(line *ModuleLine, local bool) *reference.Call {
	if !local || t.tokens <= mostTried || glue(t.module) {
		return nil
	}
	call := t.call
	unit := 1 // tokens that are selected together
	if !t.module.Kind.TokenWise() {
		unit = call.Batch.Seq
	}
	var picks []int
	pick := func(token int) {
		if p := token / unit; !slices.Contains(picks, p) && (len(picks) == 0 || (len(picks)+1)*unit <= mostTried) {
			picks = append(picks, p)
		}
	}
	for _, c := range line.wrong("output", "choice", "grad_input", "grad_logits") {
		for _, token := range c.Tokens {
			pick(token)
		}
	}
	for i := range mostTried {
		pick(i * t.tokens / mostTried)
	}
	slices.Sort(picks)
	if unit == 1 {
		call.Tokens = picks
	} else {
		call.Sequences = picks
	}
	return &call
}

// strainUnder is the largest strain of the trial under a hypothesis: on few rows with one rounding,
// or on all with the gradients of weights.
func (j *judge) strainUnder(t *trial, h hypothesis, few *reference.Call, line *ModuleLine) (strain float64) {
	call, roundings := t.call, h.ways
	var rows []int
	if few != nil {
		call, roundings, rows = *few, h.ways[:1], selected(*few)
	}
	call.In = slices.Clone(call.In)
	h.change(&call)
	exact, floors, err := t.compute(call, roundings)
	if err != nil {
		return inf
	}
	all := t.judgeOutcome(exact, floors, rows)
	for _, c := range line.Comparisons {
		want, ok := exact.params[c.Name]
		if c.What != "gradient" || !ok || few != nil || len(j.repeats) > 1 {
			continue
		}
		noise := pick(floors, func(o outcome) []float64 { return o.params[c.Name].Data })
		if p, err := j.gradient(c.Name, want.Data, noise, want.Dims); err == nil && p != nil {
			all = append(all, *p)
		}
	}
	for _, c := range all {
		if !(c.Strain <= strain) {
			strain = c.Strain
		}
	}
	return strain
}

// mistakes returns the known ones that the module's kind can have. Those of one expert or two are
// tried with the experts that the worst tokens chose most often.
func (t *trial) mistakes(line *ModuleLine, local bool) (all []hypothesis) {
	add := func(name, says string) {
		all = append(all, hypothesis{name, says, func(c *reference.Call) { c.Mistake = name }, t.ways})
	}
	suspects := t.suspects(line)
	for _, m := range reference.Mistakes() {
		switch {
		case !slices.Contains(m.Kinds, t.module.Kind), !local && !strings.Contains(m.Name, "detached"):
		case m.Name == "scale_other" || m.Name == "window_other": // these are fitted
		case m.Name == "experts_missing_one":
			for _, e := range suspects {
				add(fmt.Sprintf("%s:%d", m.Name, e), fmt.Sprintf("%s: expert %d", m.Says, e))
			}
		case m.Name == "experts_swapped":
			for i, e := range suspects {
				for _, f := range suspects[:i] {
					add(fmt.Sprintf("%s:%d,%d", m.Name, e, f), fmt.Sprintf("%s: experts %d and %d", m.Says, min(e, f), max(e, f)))
				}
			}
		default:
			add(m.Name, m.Says)
		}
	}
	return all
}

// suspects lists at most four experts, those with the fewest tokens that are right. Of
// these, the ones with most tokens come first.
func (t *trial) suspects(line *ModuleLine) (all []int) {
	chosen := t.call.Choices[t.layerPath()+"mlp.gate.indices"]
	share, wrong := map[int]float64{}, t.far(line, "output", "grad_input")
	for i, e := range chosen.Data {
		if _, seen := share[int(e)]; !seen {
			all = append(all, int(e))
		}
		if share[int(e)] += 1e-9; !slices.Contains(wrong, i*t.tokens/len(chosen.Data)) {
			share[int(e)]--
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return compareFloat(share[b], share[a]) })
	return all[:min(4, len(all))]
}

// far lists the trial's tokens that are far off in wrong tensors.
func (t *trial) far(line *ModuleLine, what ...string) (tokens []int) {
	for _, c := range line.wrong(what...) {
		if strings.HasSuffix(c.Name, t.repeat.Suffix()) {
			tokens = append(tokens, c.far...)
		}
	}
	return tokens
}

// layerPath is the path of the module's layer, with a dot.
func (t *trial) layerPath() string { return fmt.Sprintf("model.layers.%d.", t.module.Layer) }

// mixUps returns hypotheses of tensors that were mixed up: the weights of another layer or of after
// the step, the input of another module; and of a lower precision than the folder says.
func (j *judge) mixUps(t *trial) (all []hypothesis) {
	replace := func(name, says string, with func(param string) (step.Value, error)) {
		all = append(all, hypothesis{name, says, func(c *reference.Call) {
			own := c.Param
			c.Param = func(param string) (reference.Tensor, error) {
				if v, err := with(param); err == nil {
					return v.Tensor, nil
				}
				return own(param)
			}
		}, t.ways})
	}
	if t.module.Kind == reference.Experts {
		replace("weights_transposed", "gate_up_proj is transposed in memory: its numbers are those of the transposed matrix, row by row", j.turned)
	}
	if len(t.module.Params) > 0 {
		replace("weights_after", "the weights are those after the step", j.folder.After)
	}
	for layer := range j.folder.Model.Layers {
		if path := fmt.Sprintf("model.layers.%d.", layer); len(t.module.Params) > 0 && t.module.Layer >= 0 && layer != t.module.Layer {
			replace(fmt.Sprintf("weights_of_layer:%d", layer), fmt.Sprintf("the weights are those of layer %d", layer), func(p string) (step.Value, error) {
				return j.folder.Weight(strings.Replace(p, t.layerPath(), path, 1))
			})
		}
	}
	for _, name := range j.alike(t) {
		all = append(all, hypothesis{"other_input", "it read " + name + " instead of " + t.module.Inputs[0].Name, func(c *reference.Call) {
			if v, err := j.folder.Activation(name + t.repeat.Suffix()); err == nil && len(v.Data) == len(c.In[0].Data) {
				c.In[0] = v.Tensor
			}
		}, t.ways})
	}
	for _, f := range []reference.Format{reference.BF16, reference.FP16} {
		if base := t.ways[0]; base.Format == reference.FP32 {
			base.Format, base.Of, base.Autocast = f, nil, f
			all = append(all, hypothesis{"lower_precision", "it computes in " + formatNames[f] + ", the folder says F32", func(*reference.Call) {}, threeWays(base)})
		}
	}
	return all
}

// alike lists recorded tensors that a module could have read by mistake: the same port of
// neighbouring layers, and the hidden states of its own.
func (j *judge) alike(t *trial) (names []string) {
	if len(t.module.Inputs) == 0 || t.module.Layer < 0 {
		return nil
	}
	own := t.module.Inputs[0].Name
	var candidates []string
	for _, port := range []string{"input_layernorm.input", "input_layernorm.output", "post_attention_layernorm.input", "post_attention_layernorm.output", "self_attn.output"} {
		candidates = append(candidates, t.layerPath()+port)
	}
	for layer := t.module.Layer - 2; layer <= t.module.Layer+2; layer++ {
		candidates = append(candidates, strings.Replace(own, t.layerPath(), fmt.Sprintf("model.layers.%d.", layer), 1))
	}
	for _, name := range candidates {
		_, ok := j.folder.DType(step.Activations, name+t.repeat.Suffix())
		if ok && name != own && t.module.Outputs[0].Name != name {
			names = append(names, name)
		}
	}
	return names
}
