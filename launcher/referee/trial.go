package referee

import (
	"errors"
	"fmt"
	"slices"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// trial is one call of a module with all that the run recorded of it. The reference computes the
// module from the recorded inputs and output gradients.
type trial struct {
	module *reference.Module
	repeat step.Repeat
	call   reference.Call
	tokens int // rows of its inputs, 0 for a module without

	out, gradIn []*observed // nil: not recorded
	gradOut     []reference.Tensor
	backward    bool // gradOut holds all of them
	router      *routerGradients
	ways        []reference.Rounding
	least       float64 // of the module's format
	openGroups  int     // groups of experts that a token may use; 0: no groups

	exact  outcome
	floors []outcome
}

// observed is a tensor that the run recorded.
type observed struct {
	name string
	step.Value
}

// outcome is what the reference computes for a trial.
type outcome struct {
	out, gradIn []reference.Tensor
	params      map[string]reference.Tensor
	extra       map[string]reference.Tensor
	logits      reference.Tensor // the gradient of a router's logits
}

// read returns the recorded tensor of a port, or of its gradient. Both may be columns of a wider
// tensor. A tensor that is not there is nil.
func (j *judge) read(m *reference.Module, name string, p reference.Port, r step.Repeat) (*observed, error) {
	if !glue(m) {
		name = j.find(name, r)
	}
	full := name + r.Suffix()
	v, err := j.folder.Activation(full)
	if errors.Is(err, step.ErrAbsent) || name == "" {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if p.Hi > 0 {
		if len(v.Dims) == 0 || v.Dims[0] == 0 || len(v.Data)/v.Dims[0] < p.Hi {
			return nil, fmt.Errorf("%s has shape %v: rows of at least %d elements are expected", full, v.Dims, p.Hi)
		}
		v.Tensor = p.Cut(v.Tensor, v.Dims[0])
	}
	return &observed{full, v}, nil
}

// open collects what was recorded of a call; nil: too little for a judgment.
func (j *judge) open(m *reference.Module, r step.Repeat) (t *trial, err error) {
	t = &trial{module: m, repeat: r}
	if t.call.Batch, err = j.folder.Batch(r); err != nil {
		return nil, err
	}
	t.tokens = len(t.call.Batch.IDs)
	for _, p := range m.Inputs {
		v, err := j.read(m, p.Name, p, r)
		if err != nil {
			return nil, err
		} else if v == nil {
			return nil, nil
		}
		t.call.In = append(t.call.In, v.Tensor)
		g, err := j.read(m, p.Grad, p, r)
		if err != nil {
			return nil, err
		}
		t.gradIn = append(t.gradIn, g)
	}
	t.backward = true
	for _, p := range m.Outputs {
		v, err := j.read(m, p.Name, p, r)
		if err != nil {
			return nil, err
		}
		t.out = append(t.out, v)
		g, err := j.gradientOf(m, p, r)
		if err != nil {
			return nil, err
		}
		t.gradOut = append(t.gradOut, g)
		t.backward = t.backward && g.Data != nil
	}
	t.backward = t.backward && !glue(m)
	if m.Kind == reference.Router {
		if err := j.openRouter(t); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(t.out, func(v *observed) bool { return v != nil }) && !t.backward {
		return nil, nil
	}
	if t.call.Choices, err = j.choices(r); err != nil {
		return nil, err
	}
	t.call.Param = j.params(m)
	t.ways, t.least = j.roundings(m, r)
	t.openGroups = j.folder.Model.TopKGroups
	t.call.Fast = t.least > 1e-5
	return t, nil
}

// gradientOf returns the recorded gradient of an output. That of a loss is the loss scale.
func (j *judge) gradientOf(m *reference.Module, p reference.Port, r step.Repeat) (reference.Tensor, error) {
	if m.Kind == reference.Head || m.Kind == reference.Loss {
		return reference.Tensor{Data: []float64{j.folder.Info.LossScale}}, nil
	}
	v, err := j.read(m, p.Grad, p, r)
	if v == nil {
		return reference.Tensor{}, err
	}
	return v.Tensor, err
}

// choices returns the recorded choices of all routers, without the suffix of the repeat.
func (j *judge) choices(r step.Repeat) (map[string]reference.Tensor, error) {
	if j.chosenOf == nil || *j.chosenOf != r {
		all := map[string]reference.Tensor{}
		for _, m := range j.modules {
			if m.Kind != reference.Router {
				continue
			}
			for _, what := range []string{".indices", ".kept"} {
				v, err := j.folder.Activation(m.Path + what + r.Suffix())
				if errors.Is(err, step.ErrAbsent) {
					continue
				} else if err != nil {
					return nil, err
				}
				all[m.Path+what] = v.Tensor
			}
		}
		j.chosenOf, j.chosen = &r, all
	}
	return j.chosen, nil
}

// params reads parameters, and keeps those of one module.
func (j *judge) params(m *reference.Module) func(string) (reference.Tensor, error) {
	if j.weightsOf != m {
		j.weightsOf, j.weights = m, map[string]reference.Tensor{}
	}
	held := j.weights
	return func(name string) (reference.Tensor, error) {
		if t, ok := held[name]; ok {
			return t, nil
		}
		v, err := j.folder.Weight(name)
		if err == nil {
			held[name] = v.Tensor
		}
		return v.Tensor, err
	}
}

// run computes the module, forward and as far as the trial has output gradients backward.
func (t *trial) run(call reference.Call) (o outcome, err error) {
	pass, err := t.module.Forward(call)
	if err != nil {
		return o, err
	}
	o.out, o.extra = pass.Out, pass.Extra
	if t.backward {
		grads := t.gradOut
		if call.Tokens != nil || call.Sequences != nil {
			rows := selected(call)
			grads = slices.Clone(grads)
			for i, g := range grads {
				grads[i] = rowsOf(g, t.tokens, rows)
			}
		}
		for i, g := range grads {
			if n := len(g.Data); n > 0 && n != len(pass.Out[i].Data) {
				return o, fmt.Errorf("%s has %d elements: expected those of %s, %d", t.module.Outputs[i].Grad, n, t.module.Outputs[i].Name, len(pass.Out[i].Data))
			}
		}
		o.gradIn, o.params = pass.Backward(grads)
	}
	if t.router != nil {
		o.logits, err = t.routerLogits(call)
	}
	return o, err
}

// selected lists the tokens of a call; nil stands for all.
func selected(call reference.Call) []int {
	if call.Sequences == nil {
		return call.Tokens
	}
	var rows []int
	for _, s := range call.Sequences {
		for i := range call.Batch.Seq {
			rows = append(rows, s*call.Batch.Seq+i)
		}
	}
	return rows
}

// rowsOf returns the given rows of a tensor of all tokens. Any other tensor stays as it is.
func rowsOf(x reference.Tensor, tokens int, rows []int) reference.Tensor {
	if rows == nil || len(x.Dims) == 0 || x.Dims[0] != tokens {
		return x
	}
	width := len(x.Data) / tokens
	data := make([]float64, 0, len(rows)*width)
	for _, r := range rows {
		data = append(data, x.Data[r*width:(r+1)*width]...)
	}
	dims := slices.Clone(x.Dims)
	dims[0] = len(rows)
	return reference.Tensor{Dims: dims, Data: data}
}

// compute runs the exact reference and its roundings.
func (t *trial) compute(call reference.Call, ways []reference.Rounding) (exact outcome, floors []outcome, err error) {
	if exact, err = t.run(call); err != nil {
		return exact, nil, err
	}
	for _, way := range ways {
		call.Rounding = way
		o, err := t.run(call)
		if err != nil {
			return exact, nil, err
		}
		floors = append(floors, o)
	}
	return exact, floors, nil
}

// judgeOutcome compares what was recorded with the reference. rows are the tokens that the
// reference computed, nil for all.
func (t *trial) judgeOutcome(exact outcome, floors []outcome, rows []int) (all []Comparison) {
	skip := t.padding(rows)
	tensors := func(what string, recorded []*observed, list func(outcome) []reference.Tensor) {
		want := list(exact)
		for i, v := range recorded {
			if v == nil || i >= len(want) {
				continue
			}
			got := rowsOf(v.Tensor, t.tokens, rows)
			if len(got.Data) != len(want[i].Data) && t.module.Kind == reference.Rotary {
				continue // tables of other positions on each rank
			}
			if len(got.Data) != len(want[i].Data) {
				all = append(all, Comparison{What: what, Name: v.name, Statistic: "shape", Strain: inf,
					Note: fmt.Sprintf("it has shape %v, the reference %v", got.Dims, want[i].Dims)})
				continue
			}
			noise := pick(floors, func(o outcome) []float64 { return list(o)[i].Data })
			least := leastOf(v.DType)
			if glue(t.module) { // its terms may be of a lower type, as under autocast
				least = max(least, t.least)
			}
			all = append(all, tensorPair{got.Data, want[i].Data, noise, rowCount(got), least, skip}.compareRows(what, v.name))
		}
	}
	tensors("output", t.out, func(o outcome) []reference.Tensor { return o.out })
	if t.backward {
		tensors("grad_input", t.gradIn, func(o outcome) []reference.Tensor { return o.gradIn })
	}
	if t.router != nil {
		all = append(all, t.judgeLogits(exact, floors, rows))
	}
	if c, ok := t.regret(exact, floors, rows); ok {
		all = append(all, c)
	}
	return all
}

func rowCount(t reference.Tensor) int {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// pick returns one tensor of each rounding.
func pick(floors []outcome, of func(outcome) []float64) (all [][]float64) {
	for _, f := range floors {
		all = append(all, of(f))
	}
	return all
}

// padding returns what says whether a row is padding.
func (t *trial) padding(rows []int) func(int) bool {
	mask := t.call.Batch.Mask
	if mask == nil {
		return nil
	}
	return func(row int) bool {
		if rows != nil {
			row = rows[row]
		}
		return row < len(mask) && mask[row] == 0
	}
}
