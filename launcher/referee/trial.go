package referee

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// trial is one call of a module with all that the run recorded of it. The reference computes the
// module from the recorded inputs and output gradients.
type trial struct {
	judge    *judge
	module   *reference.Module
	repeat   step.Repeat
	call     reference.Call
	tokens   int
	held     map[string]*step.Value // by label of a port; nil: not recorded
	backward bool                   // the gradients of all outputs are recorded
	ways     []reference.Rounding
	least    float64     // relative error of a row that the module's format costs
	ties     *[2]float64 // of casts in all roundings; nil: each has its own

	logits    bool      // both gradients of a router are recorded
	auxiliary []float64 // the gradient of auxiliary losses at its logits; nil: none

	exact  outcome
	floors []outcome
	trace  *reference.Trace // without a mistake, on few rows; nil: not yet
}

// outcome is what the reference computes for a trial.
type outcome = map[string]reference.Tensor

// read returns the recorded tensor of a port, or nil. A port without a name of its own in a folder
// has that of a port that holds the same.
func (t *trial) read(p reference.Port) (*step.Value, error) {
	if v, ok := t.held[p.Label()]; ok {
		return v, nil
	}
	name := p.Name
	if !t.module.Kind.Glue() || strings.Contains(name, ".hidden") {
		name = t.judge.find(name, t.repeat)
	}
	v, err := t.judge.folder.Read(step.Activations, name, t.repeat)
	if errors.Is(err, step.ErrAbsent) {
		t.held[p.Label()] = nil
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	isChoice := []string{".indices", ".kept", ".self_attn.output.2"} // the last one is the keys of a layer of GLM
	if choice := slices.ContainsFunc(isChoice, func(end string) bool { return strings.HasSuffix(name, end) }); !choice && strings.ContainsAny(v.DType[:1], "IUB") && v.DType != "BF16" {
		return nil, fmt.Errorf("%s is %s: expected floating point numbers", name, v.DType)
	}
	if p.Hi > 0 {
		if len(v.Dims) == 0 || v.Dims[0] == 0 || len(v.Data)/v.Dims[0] < p.Hi {
			return nil, fmt.Errorf("%s has shape %v: rows of at least %d elements are expected", name, v.Dims, p.Hi)
		}
		cut := reference.Tensor{Dims: []int{v.Dims[0], p.Hi - p.Lo}}
		width := len(v.Data) / v.Dims[0]
		for r := range v.Dims[0] {
			cut.Data = append(cut.Data, v.Data[r*width+p.Lo:r*width+p.Hi]...)
		}
		v.Tensor = cut
	}
	t.held[p.Label()] = &v
	return &v, nil
}

// newCall returns the call of the module with its batch, its weights and what is recorded.
func (t *trial) newCall() (c reference.Call, err error) {
	c.Batch, err = t.judge.folder.Batch(t.repeat)
	if err != nil {
		return c, err
	}
	t.tokens = len(c.Batch.IDs)
	scale, loss := t.judge.folder.Info.LossScale, t.judge.indexLoss()
	c.Losses = map[string]float64{t.module.Outputs[0].Name: scale}
	c.Warmup = loss.Stage == "warmup"
	for _, m := range t.judge.modules {
		if m.Kind == reference.IndexLoss && loss.Coefficient != 0 {
			c.Losses[m.Outputs[0].Name] = loss.Coefficient * scale
		}
	}
	c.Fast = t.least > 1e-5
	c.Given = func(name string) (x reference.Tensor, ok bool) {
		v, ok := t.held[name]
		if !ok { // such as a choice, or the tensor that a mistake takes instead
			base, columns, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
			p := reference.Port{Name: base}
			fmt.Sscanf(columns, "%d:%d", &p.Lo, &p.Hi)
			v, _ = t.read(p)
		}
		if v == nil {
			return x, false
		}
		return v.Tensor, true
	}
	if t.judge.weightsOf != t.module {
		t.judge.weightsOf = t.module
		t.judge.weights = map[string]reference.Tensor{}
	}
	weights := t.judge.weights
	c.Param = func(name string) (reference.Tensor, error) {
		if w, ok := weights[name]; ok {
			return w, nil
		}
		v, err := t.judge.folder.Read(step.Weights, name, step.Repeat{})
		if err == nil && t.module.Kind != reference.Model { // which holds them itself
			weights[name] = v.Tensor
		}
		return v.Tensor, err
	}
	return c, nil
}

// open collects what was recorded of a call; nil: too little for a judgment.
func (j *judge) open(m *reference.Module, r step.Repeat) (t *trial, err error) {
	t = &trial{judge: j, module: m, repeat: r, held: map[string]*step.Value{}, backward: !m.Kind.Glue()}
	t.ways, t.least = j.roundings(m, r)
	if t.call, err = t.newCall(); err != nil {
		return nil, err
	}
	if m.Kind == reference.Linear { // what is recorded decides the codes: casts are part of the exact product
		t.call.Rounding.Recipe = t.ways[0].Recipe
	}
	forward := false
	for i, p := range slices.Concat(m.Inputs, m.Outputs) {
		v, err := t.read(p)
		if err != nil {
			return nil, err
		}
		isOutput := i >= len(m.Inputs)
		forward = forward || m.ChoosesKeys() && j.find(m.Choice()+".indices", r) != ""
		if v == nil && !isOutput {
			return nil, nil
		}
		g, err := t.read(p.Gradient())
		if err != nil {
			return nil, err
		}
		forward = forward || isOutput && v != nil
		t.backward = t.backward && (g != nil || !isOutput || isLoss(m))
	}
	if m.Kind == reference.Router {
		if err := t.openRouter(); err != nil {
			return nil, err
		}
	}
	if !forward && !t.backward {
		return nil, nil
	}
	return t, nil
}

// openRouter arranges the output gradients of a router. Its logits have two: that of the weights,
// which is local, and those of auxiliary losses. The recorded gradient of the logits is held
// against their sum. The gradients of the router's weight and input are judged from the recorded.
func (t *trial) openRouter() (err error) {
	ports, auxiliary := t.module.Outputs, t.judge.routerLosses()
	logits, weights := t.held[ports[0].Grad], t.held[ports[1].Grad]
	t.backward = logits != nil || weights != nil && len(auxiliary) == 0
	t.logits = logits != nil && weights != nil
	if !t.backward && weights != nil {
		t.judge.report.doubt(fmt.Sprintf("%s: an auxiliary loss is on, and the folder has no %s", t.module.Path, ports[0].Grad))
	}
	if t.logits && len(auxiliary) > 0 {
		t.auxiliary = make([]float64, len(logits.Data))
	}
	for _, loss := range auxiliary {
		if !t.logits {
			break
		}
		name := map[string]string{"load_balancing": "load_balance", "sequence": "sequence_balance"}[loss.Kind]
		m := t.judge.byPath["model."+name]
		if m == nil {
			m = t.judge.byPath[t.module.Path+"."+name]
		}
		if m == nil {
			t.judge.report.doubt(fmt.Sprintf("the auxiliary loss %q of step.json is not known: load_balancing, sequence and index_kl are", loss.Kind))
			continue
		}
		call := t.call
		call.Backward = true
		call.Losses = map[string]float64{m.Outputs[0].Name: loss.Coefficient * t.judge.folder.Info.LossScale}
		for _, p := range m.Inputs {
			if v, err := t.read(p); err != nil || v == nil {
				t.auxiliary = nil
				return err
			}
		}
		results, err := m.Run(call)
		if err != nil {
			return err
		}
		t.auxiliary = sum(t.auxiliary, results[ports[0].Grad].Data)
	}
	return nil
}

// sum returns x + y. Without y, it is x itself.
func sum(x, y []float64) []float64 {
	if y == nil {
		return x
	}
	total := slices.Clone(x)
	for i := range y {
		total[i] += y[i]
	}
	return total
}

// compute runs the exact reference and its roundings. What a call says of the casts of a linear
// layer holds for all.
func (t *trial) compute(call reference.Call, ways []reference.Rounding) (exact outcome, floors []outcome, err error) {
	casts := call.Rounding.Recipe
	for i, way := range append([]reference.Rounding{{}}, ways...) {
		if call.Rounding = way; t.module.Kind == reference.Linear {
			if call.Rounding.Recipe = casts; t.ties != nil {
				call.Rounding.Ties = *t.ties
			}
		}
		o, err := t.run(call)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			exact = o
		} else {
			floors = append(floors, o)
		}
	}
	return exact, floors, nil
}

// localLogits is the name of the gradient that a router's weights send to its logits.
const localLogits = "local logits.grad"

func (t *trial) run(call reference.Call) (outcome, error) {
	call.Backward = t.backward
	o, err := t.module.Run(call)
	if err != nil || !t.logits {
		return o, err
	}
	logits, given := t.module.Outputs[0].Grad, call.Given
	call.Backward = true
	call.Given = func(name string) (x reference.Tensor, ok bool) {
		if name == logits {
			return x, false
		}
		return given(name)
	}
	local, err := t.module.Run(call)
	o[localLogits] = local[logits]
	return o, err
}

// compareAll compares what was recorded with the reference. rows are the tokens that the reference
// computed, nil for all.
func (t *trial) compareAll(exact outcome, floors []outcome, rows []int) (all []Comparison) {
	for _, p := range t.module.Outputs {
		all = t.compare(all, "output", p, exact, floors, rows)
	}
	for _, p := range t.module.Inputs {
		if t.backward {
			all = t.compare(all, "grad_input", p.Gradient(), exact, floors, rows)
		}
	}
	if t.logits {
		all = t.compare(all, "grad_logits", t.module.Outputs[0].Gradient(), exact, floors, rows)
	}
	if c, ok := t.regret(exact, floors, rows); ok {
		all = append(all, c)
	}
	return all
}

// compare adds the comparison of one port.
func (t *trial) compare(all []Comparison, what string, p reference.Port, exact outcome, floors []outcome, rows []int) []Comparison {
	label := p.Label()
	v := t.held[label]
	if what == "grad_logits" {
		label = localLogits
	}
	want, ok := exact[label]
	if v == nil || !ok || p.Name == "" {
		return all
	}
	name := t.judge.find(p.Name, t.repeat) + t.repeat.Suffix()
	got, live := v.Rows(rows, t.tokens), t.live(rows)
	if len(got.Data) != len(want.Data) {
		if t.module.Kind == reference.Rotary {
			return all // tables of other positions on each rank
		}
		return append(all, misshapen(what, name, fmt.Sprintf("it has shape %v, the reference %v", got.Dims, want.Dims)))
	}
	cut := func(x []float64) []float64 {
		return reference.Tensor{Dims: got.Dims[:min(1, len(got.Dims))], Data: x}.Rows(live, t.computed(rows)).Data
	}
	pair := tensorPair{got: cut(got.Data), want: cut(want.Data), rows: 1, least: leastOf(v.DType)}
	if len(got.Dims) > 0 {
		pair.rows = got.Dims[0] * len(pair.got) / max(len(got.Data), 1)
		if n := len(got.Dims); n > 2 && got.Dims[0] < t.tokens && rows == nil && t.module.Kind != reference.Rotary { // entries
			pair.rows = len(got.Data) / max(got.Dims[n-1], 1)
		}
	}
	if t.module.ChoosesKeys() && what == "output" { // of keys that a token does not see, a folder may have anything
		pair.got = slices.Clone(pair.got)
		for i, s := range cut(exact[t.module.Choice()+".choice"].Data) {
			if math.IsInf(s, -1) {
				pair.got[i] = pair.want[i]
			}
		}
	}
	// The terms of glue may be of a lower type, as under autocast.
	if t.module.Kind.Glue() || t.module.Kind == reference.Linear && t.judge.quantized(t.module.Path) {
		pair.least = max(pair.least, t.least)
	}
	for _, f := range floors {
		pair.floors = append(pair.floors, cut(f[label].Data))
	}
	var extra []float64
	local := pair.want
	if what == "grad_logits" && t.auxiliary != nil {
		extra = cut(reference.Tensor{Dims: v.Dims, Data: t.auxiliary}.Rows(rows, t.tokens).Data)
		pair.want = sum(local, extra)
		for i, f := range pair.floors {
			pair.floors[i] = sum(f, extra)
			if v.DType == "BF16" { // both parts and their sum
				for k := range f {
					pair.floors[i][k] = reference.BF16.Round(f[k] + reference.BF16.Round(extra[k]))
				}
			}
		}
	}
	c := pair.compareRows(what, name)
	if c.Wrong() && extra != nil {
		c.Note = describeParts(pair.got, []part{{"the local part", "", local}, {"the auxiliary loss of step.json", "", extra}}, c, 0)
	}
	for i, row := range c.far {
		if pair.rows == len(live) {
			c.far[i] = live[row]
		}
	}
	c.Tokens = c.far[:min(8, len(c.far))]
	return append(all, c)
}

func misshapen(what, name, note string) Comparison {
	return Comparison{What: what, Name: name, Statistic: "shape", Strain: inf, Note: note}
}

// computed is the number of tokens of a call.
func (t *trial) computed(rows []int) int {
	if rows == nil {
		return t.tokens
	}
	return len(rows)
}

// live returns which of the computed tokens are no padding; nil: all.
func (t *trial) live(rows []int) (live []int) {
	for i := range t.computed(rows) {
		token := i
		if rows != nil {
			token = rows[i]
		}
		if t.call.Batch.Mask != nil && t.call.Batch.Mask[token] != 0 {
			live = append(live, i)
		}
	}
	return live
}

// layerPath is the path of the module's layer, with a dot.
func (t *trial) layerPath() string { return fmt.Sprintf("model.layers.%d.", t.module.Layer) }

// with returns a lookup that has other tensors first.
func with(given func(string) (reference.Tensor, bool), others map[string]reference.Tensor) func(string) (reference.Tensor, bool) {
	return func(name string) (reference.Tensor, bool) {
		if x, ok := others[name]; ok {
			return x, true
		}
		return given(name)
	}
}
