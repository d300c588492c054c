package referee

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// A wrong module is computed again under each known mistake. A mistake under which the reference
// agrees with the run explains it. That is first tried on few tokens, the worst among them; what
// survives is tried on all.

const (
	mostTried = 256 // tokens
	mostNamed = 4   // causes of a module
	survives  = 1.5 // strain on few tokens and one rounding
)

// hypothesis is a change of a trial's call that may explain it.
type hypothesis struct {
	name, says string
	change     func(*reference.Call)
	ways       []reference.Rounding // nil: those of the trial
}

// explain returns the causes under which the reference agrees with a wrong trial, best first.
func (j *judge) explain(t *trial, line *ModuleLine) []Cause {
	alone := len(j.repeats) == 1 // else gradients of parameters are sums over calls
	local, gone := false, false
	for _, c := range line.wrong() {
		if c.Statistic == "shape" {
			return nil
		}
		local = local || c.What != "gradient"
		gone = gone || c.Scaled && c.Factor == 0
	}
	if !local && !(alone && gone) {
		return nil // a weight's gradient alone: its module's backward pass is right
	}
	if cause := t.otherWeight(line); cause != nil {
		return []Cause{*cause}
	}
	few := t.sample(line, local)
	var causes []Cause
	try := func(all []hypothesis) {
		for _, h := range all {
			if few != nil && !(j.strainUnder(t, h, few, 1, line) <= survives) {
				continue
			}
			if s := j.strainUnder(t, h, nil, len(t.ways), line); s <= 1 {
				causes = append(causes, Cause{h.name, h.says, s})
			}
		}
	}
	mistakes := j.knownMistakes(t, line)
	if !local {
		mistakes = slices.DeleteFunc(mistakes, func(h hypothesis) bool { return !strings.Contains(h.name, "detached") })
	}
	try(mistakes)
	if cause := t.lostChoices(); len(causes) == 0 && cause != nil {
		causes = append(causes, *cause)
	}
	if len(causes) == 0 && local {
		try(j.otherTensors(t))
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
	var worst []int
	for _, c := range line.wrong() {
		if c.What != "gradient" && c.Rows > 1 {
			worst = append(worst, c.Tokens...)
		}
	}
	if !t.module.Kind.TokenWise() {
		seq := call.Batch.Seq
		call.Sequences = []int{0}
		if len(worst) > 0 {
			call.Sequences[0] = worst[0] / seq
		}
		for s := 0; s < call.Batch.Batch && (len(call.Sequences)+1)*seq <= mostTried; s++ {
			if !slices.Contains(call.Sequences, s) {
				call.Sequences = append(call.Sequences, s)
			}
		}
		slices.Sort(call.Sequences)
		return &call
	}
	rows := map[int]bool{}
	for _, w := range worst {
		rows[w] = true
	}
	for i := 0; len(rows) < mostTried && i < mostTried; i++ {
		rows[i*t.tokens/mostTried] = true
	}
	for r := range rows {
		call.Tokens = append(call.Tokens, r)
	}
	slices.Sort(call.Tokens)
	return &call
}

// strainUnder is the largest strain of the trial under a hypothesis. few selects rows; nil: all.
func (j *judge) strainUnder(t *trial, h hypothesis, few *reference.Call, ways int, line *ModuleLine) float64 {
	call := t.call
	if few != nil {
		call = *few
	}
	call.In = slices.Clone(call.In)
	h.change(&call)
	roundings := t.ways
	if h.ways != nil {
		roundings = h.ways
	}
	var rows []int
	if few != nil {
		rows = selected(*few)
	}
	exact, floors, err := t.compute(call, roundings[:ways])
	if err != nil {
		return inf
	}
	all := t.judgeOutcome(exact, floors, rows)
	strain := 0.0
	if few == nil && len(j.repeats) == 1 {
		for _, c := range line.Comparisons {
			want, ok := exact.params[c.Name]
			if c.What != "gradient" || !ok || c.Statistic == "shape" {
				continue
			}
			var noise [][]float64
			for _, f := range floors {
				noise = append(noise, f.params[c.Name].Data)
			}
			if p, err := j.gradient(c.Name, want.Data, noise, want.Dims); err == nil && p != nil {
				all = append(all, *p)
			}
		}
	}
	for _, c := range all {
		if !(c.Strain <= strain) {
			strain = c.Strain
		}
	}
	return strain
}

// knownMistakes returns the mistakes that the module's kind can have. Those of one expert are tried
// with the experts that the wrong tokens and gradients point to.
func (j *judge) knownMistakes(t *trial, line *ModuleLine) (all []hypothesis) {
	add := func(name, says string) {
		all = append(all, hypothesis{name, says, func(c *reference.Call) { c.Mistake = name }, nil})
	}
	suspects := j.suspects(t, line)
	for _, m := range reference.Mistakes() {
		switch {
		case !slices.Contains(m.Kinds, t.module.Kind):
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

// suspects lists at most five experts, those that the wrong tokens chose most, relative to all, and
// those with wrong gradients.
func (j *judge) suspects(t *trial, line *ModuleLine) (all []int) {
	for _, c := range line.wrong() {
		_, rest, found := strings.Cut(c.Name, ".experts.")
		number, _, _ := strings.Cut(rest, ".")
		if e, err := strconv.Atoi(number); found && err == nil && c.What == "gradient" && !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	if len(all) > 5 {
		all = nil
	}
	for path, chosen := range t.call.Choices {
		if !strings.HasSuffix(path, ".indices") || !strings.HasPrefix(path, t.layerPath()) || len(chosen.Dims) == 0 || chosen.Dims[0] != t.tokens {
			continue
		}
		errors := t.rowErrors()
		if errors == nil {
			continue
		}
		k := len(chosen.Data) / t.tokens
		weight, count := map[int]float64{}, map[int]float64{}
		for row, e := range errors {
			for _, expert := range chosen.Data[row*k : (row+1)*k] {
				weight[int(expert)] += min(e, 2)
				count[int(expert)]++
			}
		}
		order := make([]int, 0, len(count))
		for e := range count {
			order = append(order, e)
		}
		slices.SortFunc(order, func(a, b int) int { return -compareFloat(weight[a]/count[a], weight[b]/count[b]) })
		for _, e := range order {
			if len(all) < 5 && !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return all
}

// layerPath is the path of the module's layer, with a dot.
func (t *trial) layerPath() string {
	return fmt.Sprintf("model.layers.%d.", t.module.Layer)
}

// rowErrors returns the relative error of each row of the first output, or of the first input's
// gradient if the outputs are right; nil: neither is recorded.
func (t *trial) rowErrors() []float64 {
	of := func(v *observed, want reference.Tensor) []float64 {
		if v == nil || len(v.Data) != len(want.Data) || len(want.Dims) == 0 || want.Dims[0] != t.tokens {
			return nil
		}
		width, errors := len(want.Data)/t.tokens, make([]float64, t.tokens)
		for r := range errors {
			w := want.Data[r*width : (r+1)*width]
			errors[r] = distance(v.Data[r*width:(r+1)*width], w, nil) / max(normOf(w, nil), 1e-300)
		}
		return errors
	}
	forward := of(t.out[0], t.exact.out[0])
	if t.backward && len(t.gradIn) > 0 && (forward == nil || median(forward) < 1e-2 && worstOf(forward) < 1e-1) {
		if backward := of(t.gradIn[0], t.exact.gradIn[0]); backward != nil {
			return backward
		}
	}
	return forward
}

// otherTensors returns hypotheses of tensors mixed up: a weight of another layer, transposed, or of
// after the step; an input of another place; a lower precision than the folder says.
func (j *judge) otherTensors(t *trial) (all []hypothesis) {
	replace := func(name, says string, with func(param string) (reference.Tensor, error)) {
		all = append(all, hypothesis{name, says, func(c *reference.Call) {
			own := c.Param
			c.Param = func(param string) (reference.Tensor, error) {
				if v, err := with(param); err == nil {
					return v, nil
				}
				return own(param)
			}
		}, nil})
	}
	if len(t.module.Params) > 0 {
		if _, err := j.folder.After(t.module.Params[0]); err == nil {
			replace("weights_after", "the weights are those after the step", func(p string) (reference.Tensor, error) {
				v, err := j.folder.After(p)
				return v.Tensor, err
			})
		}
		for layer := range j.folder.Model.Layers {
			if layer == t.module.Layer || t.module.Layer < 0 {
				continue
			}
			from, to := t.layerPath(), fmt.Sprintf("model.layers.%d.", layer)
			replace(fmt.Sprintf("weights_of_layer:%d", layer), fmt.Sprintf("the weights are those of layer %d", layer), func(p string) (reference.Tensor, error) {
				v, err := j.folder.Weight(strings.Replace(p, from, to, 1))
				return v.Tensor, err
			})
		}
	}
	for i := range t.call.In {
		for _, name := range j.alikeInputs(t, i) {
			all = append(all, hypothesis{"other_input", "it read " + name + " instead of " + t.module.Inputs[i].Name, func(c *reference.Call) {
				if v, err := j.folder.Activation(name + t.repeat.Suffix()); err == nil && len(v.Data) == len(c.In[i].Data) {
					c.In[i] = v.Tensor
				}
			}, nil})
		}
	}
	for _, f := range []reference.Format{reference.BF16, reference.FP16} {
		if base := t.ways[0]; lower(f, base.Format) && base.Format == reference.FP32 {
			base.Format, base.Of, base.Autocast = f, nil, f
			all = append(all, hypothesis{"lower_precision", "it computes in " + formatNames[f] + ", the folder says " + formatNames[reference.FP32], func(*reference.Call) {}, threeWays(base)})
		}
	}
	return all
}

// alikeInputs lists recorded tensors that a module could have read by mistake: the same port of
// other layers, and the residual stream of its own.
func (j *judge) alikeInputs(t *trial, i int) (names []string) {
	own := t.module.Inputs[i].Name
	if t.module.Layer < 0 || t.module.Inputs[i].Hi != 0 {
		return nil
	}
	layer := strings.TrimSuffix(t.layerPath(), ".")
	candidates := []string{layer + ".input", layer + ".input_layernorm.input", layer + ".input_layernorm.output",
		layer + ".post_attention_layernorm.input", layer + ".post_attention_layernorm.output", layer + ".self_attn.output"}
	for other := max(0, t.module.Layer-2); other <= t.module.Layer+2; other++ {
		candidates = append(candidates, strings.Replace(own, t.layerPath(), fmt.Sprintf("model.layers.%d.", other), 1))
	}
	for _, name := range candidates {
		_, ok := j.folder.DType(step.Activations, name+t.repeat.Suffix())
		if ok && name != own && !slices.ContainsFunc(t.module.Outputs, func(p reference.Port) bool { return p.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}
