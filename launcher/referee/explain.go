package referee

import (
	"cmp"
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
	change     func(*reference.Call) // nil: the call makes the mistake of that name
	ways       []reference.Rounding  // nil: those of the trial
	elsewhere  bool                  // it reads other weights, whose gradients are not its own
}

// explain returns the causes under which the reference agrees with a wrong trial, best first. If a
// weight's gradient alone is wrong, its module's backward pass is right. Only a gradient that is
// missing may be a mistake of the module.
func (j *judge) explain(t *trial, line *ModuleLine) (causes []Cause) {
	local, gone := false, false
	for _, c := range line.wrong() {
		local = local || c.What != "gradient"
		gone = gone || c.Scaled && c.Factor == 0
	}
	castsAlone := !local && t.module.Kind == reference.Linear && j.quantized(t.module.Path)
	if line.wrong()[0].Statistic == "shape" && t.module.Kind != reference.Pool || !local && !castsAlone && !(gone && len(j.repeats) == 1) {
		return nil
	}
	few := t.sample(line, local)
	far := t.missed(t.exact, few)
	try := func(all []hypothesis) {
		for _, h := range all {
			// A mistake that explains a wrong output brings the reference nearer to it.
			if nearer := h.ways == nil && len(line.wrong("output")) > 0 && far < inf; nearer && !(t.missUnder(h, few) < far) {
				continue
			}
			if !(j.strainUnder(t, h, few, line, 1) <= survives) {
				continue
			}
			s := j.strainUnder(t, h, t.call, line, 3)
			if s <= 1 && !(h.ways != nil && s < leastStrain) { // a lower precision's wider floor would hide anything small
				causes = append(causes, Cause{h.name, h.says, s})
			}
		}
	}
	if try(j.casts(t, line)); len(causes) > 0 || castsAlone {
		return causes[:min(1, len(causes))]
	}
	judged := line.worst("gradient")
	if t.module.Kind == reference.Linear && judged != nil && !judged.Wrong() && len(line.wrong("output")) > 0 && len(line.wrong("grad_input")) > 0 {
		return []Cause{{Name: "weight_other", Says: "the weight that it used is not the one in the folder: the weight's own gradient is right, the output and the gradient of the input are not"}}
	}
	if try(t.mistakes(line, local)); len(causes) == 0 {
		if cause := t.lostChoices(); cause != nil {
			return []Cause{*cause}
		}
	}
	if len(causes) == 0 && local {
		try(append(t.fitted(few, line), j.mixUps(t)...))
	}
	if len(causes) == 0 {
		causes = t.pattern(line)
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(a.Strain, b.Strain) })
	return causes[:min(mostNamed, len(causes))]
}

// missed is the distance of the recorded outputs from computed ones: on few rows, or on all. It is
// infinite for scores of keys: a run may have any number where a token sees no key.
func (t *trial) missed(o outcome, few reference.Call) (sum float64) {
	if t.module.ChoosesKeys() {
		return inf
	}
	rows := few.Rows(t.module.Kind)
	for _, p := range t.module.Outputs {
		if v := t.held[p.Label()]; v != nil {
			got := v.Rows(rows, t.tokens).Data
			want := o[p.Label()].Rows(rows, t.tokens).Data
			sum += distance(got[:min(len(got), len(want))], want, nil)
		}
	}
	return sum
}

// missUnder is missed under a hypothesis. All calls of a trial have the same rows.
func (t *trial) missUnder(h hypothesis, few reference.Call) float64 {
	if t.trace == nil {
		t.trace = t.module.Trace(few)
	}
	run := t.trace.Run
	if h.change != nil {
		h.change(&few)
		run = func(string) (outcome, error) { return t.module.Run(few) }
	}
	o, err := run(h.name)
	if err != nil {
		return inf
	}
	return t.missed(o, few)
}

// apply makes the mistake in a call.
func (h hypothesis) apply(call *reference.Call) {
	if h.change == nil {
		call.Mistake = h.name
	} else {
		h.change(call)
	}
}

// sample returns a call of few rows, the worst among them, or of all if the trial is small or needs
// them.
func (t *trial) sample(line *ModuleLine, local bool) reference.Call {
	call := t.call
	if !local || t.tokens <= mostTried || t.module.Kind.Glue() {
		return call
	}
	unit := 1 // tokens that are selected together
	if !t.module.Kind.TokenWise() {
		unit = call.Batch.Seq
	}
	var tokens, picks []int
	for _, c := range line.wrong("output", "choice", "grad_input", "grad_logits") {
		tokens = append(tokens, c.Tokens...)
	}
	for i := range mostTried {
		tokens = append(tokens, i*t.tokens/mostTried)
	}
	for _, token := range tokens {
		if p := token / unit; !slices.Contains(picks, p) && (len(picks) == 0 || (len(picks)+1)*unit <= mostTried) {
			picks = append(picks, p)
		}
	}
	slices.Sort(picks)
	if unit == 1 {
		call.Tokens = picks
	} else {
		call.Sequences = picks
	}
	return call
}

// strainUnder is the largest strain of the trial under a hypothesis: see compareUnder.
func (j *judge) strainUnder(t *trial, h hypothesis, call reference.Call, line *ModuleLine, most int) (strain float64) {
	all, err := j.compareUnder(t, h, call, line, most)
	if err != nil {
		return inf
	}
	for _, c := range all {
		strain = max(strain, c.Strain) // a NaN stays
	}
	return strain
}

// compareUnder compares the trial under a hypothesis, with at most some of its roundings: on few
// rows, or on all. With more than one, it also compares gradients of weights.
func (j *judge) compareUnder(t *trial, h hypothesis, call reference.Call, line *ModuleLine, most int) ([]Comparison, error) {
	ways, rows, tried := h.ways, call.Rows(t.module.Kind), most
	if ways == nil {
		ways = t.ways
	}
	if t.module.Kind == reference.Linear { // the second divides by scales in another way
		tried++
	}
	ways = ways[:min(tried, len(ways))]
	h.apply(&call)
	exact, floors, err := t.compute(call, ways)
	if err != nil {
		return nil, err
	}
	all := t.compareAll(exact, floors, rows)
	for _, c := range line.Comparisons {
		want, ok := exact[c.Name]
		if c.What != "gradient" || !ok || most == 1 || len(j.repeats) > 1 || h.elsewhere {
			continue
		}
		var noise [][]float64
		for _, f := range floors {
			noise = append(noise, f[c.Name].Data)
		}
		if p, err := j.gradient(c.Name, want.Data, noise); err == nil && p != nil {
			all = append(all, *p)
		}
	}
	return all, nil
}

// mistakes returns the known ones that the module's kind can have. Those of one expert or two are
// tried with the experts that the worst tokens chose most often.
func (t *trial) mistakes(line *ModuleLine, local bool) (all []hypothesis) {
	suspects := t.suspects(line)
	for _, m := range reference.Mistakes() {
		if !slices.Contains(m.Kinds, t.module.Kind) || !local && !strings.Contains(m.Name, "detached") || strings.HasSuffix(m.Name, "_other") && fits[m.Name].name != "" {
			continue
		}
		if m.Name != "experts_missing_one" && m.Name != "experts_swapped" {
			all = append(all, hypothesis{name: m.Name, says: m.Says})
			continue
		}
		for i, e := range suspects {
			if m.Name == "experts_missing_one" {
				all = append(all, hypothesis{name: fmt.Sprintf("%s:%d", m.Name, e), says: fmt.Sprintf("%s: expert %d", m.Says, e)})
				continue
			}
			for _, f := range suspects[:i] {
				all = append(all, hypothesis{name: fmt.Sprintf("%s:%d,%d", m.Name, e, f), says: fmt.Sprintf("%s: experts %d and %d", m.Says, min(e, f), max(e, f))})
			}
		}
	}
	return all
}

// suspects lists at most four experts, those with the fewest tokens that are right. Of
// these, the ones with most tokens come first.
func (t *trial) suspects(line *ModuleLine) (all []int) {
	chosen, _ := t.call.Given(t.layerPath() + "mlp.gate.indices")
	share, wrong := map[int]float64{}, t.far(line, "output", "grad_input")
	for i, e := range chosen.Data {
		if _, seen := share[int(e)]; !seen {
			all = append(all, int(e))
		}
		if share[int(e)] += 1e-9; !slices.Contains(wrong, i*t.tokens/len(chosen.Data)) {
			share[int(e)]--
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(share[b], share[a]) })
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

// mixUps returns hypotheses of tensors that were mixed up: the weights of another layer or of after
// the step, the input of another module; and of a lower precision than the folder says.
func (j *judge) mixUps(t *trial) (all []hypothesis) {
	m := t.module
	replace := func(name, says string, with func(param string) (step.Value, error)) {
		elsewhere := strings.HasPrefix(name, "weights_of")
		all = append(all, hypothesis{name: name, says: says, elsewhere: elsewhere, change: func(c *reference.Call) {
			own := c.Param
			c.Param = func(param string) (reference.Tensor, error) {
				if v, err := with(param); err == nil {
					return v.Tensor, nil
				}
				return own(param)
			}
		}})
	}
	if m.Kind == reference.Experts {
		replace("weights_transposed", "gate_up_proj is transposed in memory: its numbers are those of the transposed matrix, row by row", j.turned)
	}
	if len(m.Params) > 0 {
		replace("weights_after", "the weights are those after the step", func(p string) (step.Value, error) { return j.folder.Read(step.After, p, step.Repeat{}) })
	}
	own, port := t.layerPath(), ""
	for _, other := range []string{"input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"} {
		if other = own + other; m.Kind == reference.Norm && other != m.Path {
			replace("weights_of:"+other, "the weights are those of another norm, "+other, func(string) (step.Value, error) {
				return j.folder.Read(step.Weights, other+".weight", step.Repeat{})
			})
		}
	}
	if len(m.Inputs) > 0 {
		port = m.Inputs[0].Name
	}
	var alike []string // that it could have read instead
	for _, other := range []string{"input_layernorm.input", "input_layernorm.output", "post_attention_layernorm.input", "post_attention_layernorm.output", "self_attn.output"} {
		alike = append(alike, own+other)
	}
	for layer := range j.folder.Model.Layers {
		path := fmt.Sprintf("model.layers.%d.", layer)
		if len(m.Params) > 0 && layer != m.Layer {
			replace(fmt.Sprintf("weights_of_layer:%d", layer), fmt.Sprintf("the weights are those of layer %d", layer), func(p string) (step.Value, error) {
				return j.folder.Read(step.Weights, strings.Replace(p, own, path, 1), step.Repeat{})
			})
		}
		if max(layer-m.Layer, m.Layer-layer) <= 2 {
			alike = append(alike, strings.Replace(port, own, path, 1))
		}
	}
	for _, name := range alike {
		v, err := j.folder.Read(step.Activations, name, t.repeat)
		if name == port || m.Layer < 0 || m.Outputs[0].Name == name || err != nil || port == "" || len(v.Data) != len(t.held[port].Data) {
			continue
		}
		all = append(all, hypothesis{name: "other_input", says: "it read " + name + " instead of " + port, change: func(c *reference.Call) {
			c.Given = with(c.Given, outcome{m.Inputs[0].Label(): v.Tensor})
		}})
	}
	for _, f := range []reference.Format{reference.BF16, reference.FP16} {
		if base := t.ways[0]; base.Format == reference.FP32 {
			base.Format, base.Of, base.Autocast = f, nil, f
			all = append(all, hypothesis{name: "lower_precision", says: "it computes in " + formatNames[f] + ", the folder says F32", change: func(*reference.Call) {}, ways: threeWays(base)})
		}
	}
	return all
}

// turned returns half of an expert's fused weight of gate and up as it is if its memory holds the
// transposed matrix.
func (j *judge) turned(param string) (v step.Value, err error) {
	up := strings.HasSuffix(param, "up_proj.weight")
	var fused []float64
	for _, half := range []string{"gate_proj.weight", "up_proj.weight"} {
		name := param[:strings.LastIndex(strings.TrimSuffix(param, ".weight"), ".")+1] + half
		if v, err = j.folder.Read(step.Weights, name, step.Repeat{}); err != nil || strings.HasSuffix(param, "down_proj.weight") {
			return v, step.ErrAbsent
		}
		fused = append(fused, v.Data...)
	}
	cols := v.Dims[len(v.Dims)-1]
	rows := len(fused) / cols
	half := make([]float64, len(fused)/2)
	for i := range half {
		at := i
		if up {
			at += len(half)
		}
		half[i] = fused[at%rows*cols+at/rows]
	}
	v.Data = half
	return v, nil
}
