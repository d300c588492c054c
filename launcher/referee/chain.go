package referee

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The whole model as a chain of its finest modules: what enters the first is the batch, and what
// leaves each enters the next. It serves gradients that no recorded output gradient leads to, and
// the reference's own activations.

// chain is one forward and backward pass of the whole model.
type chain struct {
	modules  []*reference.Module
	call     reference.Call
	values   map[string]reference.Tensor // by port, and by port of the gradient
	gradient map[string]reference.Tensor // by parameter
}

// finest returns the modules that have no finer ones inside. Auxiliary losses are left out.
func finest(all []*reference.Module) (modules []*reference.Module) {
	for _, m := range all {
		if len(m.Children) == 0 && m.Kind != reference.Balance {
			modules = append(modules, m)
		}
	}
	return modules
}

func isGradient(m *reference.Module) bool { return glue(m) && strings.HasSuffix(m.Path, ".grad") }

// run computes all ports and gradients. Each module's forward pass runs again before its backward
// pass, so that only its ports are held.
func (c *chain) run(lossGradient float64) error {
	c.values, c.gradient = map[string]reference.Tensor{}, map[string]reference.Tensor{}
	c.call.Choices = maps.Clone(c.call.Choices)
	if c.call.Choices == nil {
		c.call.Choices = map[string]reference.Tensor{}
	}
	for _, m := range c.modules {
		if isGradient(m) {
			continue
		}
		pass, err := c.forward(m)
		if err != nil {
			return err
		}
		for i, p := range m.Outputs {
			c.put(p.Name, p, pass.Out[i])
		}
		if own, ok := pass.Extra["indices"]; ok {
			if _, given := c.call.Choices[m.Path+".indices"]; !given {
				c.call.Choices[m.Path+".indices"] = own
			}
			c.values[m.Path+".indices"] = c.call.Choices[m.Path+".indices"]
		}
	}
	for _, m := range slices.Backward(c.modules) {
		if err := c.backward(m, lossGradient); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) forward(m *reference.Module) (*reference.Pass, error) {
	call := c.call
	for _, p := range m.Inputs {
		v, ok := c.values[p.Name]
		if !ok {
			return nil, fmt.Errorf("%s: nothing computes %s", m.Path, p.Name)
		}
		if p.Hi > 0 {
			var err error
			if v, err = columns(v, p.Lo, p.Hi); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", m.Path, p.Name, err)
			}
		}
		call.In = append(call.In, v)
	}
	pass, err := m.Forward(call)
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Path, err)
	}
	return pass, err
}

func (c *chain) backward(m *reference.Module, lossGradient float64) error {
	pass, err := c.forward(m)
	if err != nil {
		return err
	}
	if isGradient(m) {
		c.put(m.Outputs[0].Name, m.Outputs[0], pass.Out[0])
		return nil
	}
	if glue(m) {
		return nil // its gradients are glue of their own
	}
	grads := make([]reference.Tensor, len(m.Outputs))
	for i, p := range m.Outputs {
		if v, ok := c.values[p.Grad]; ok && p.Hi > 0 {
			if grads[i], err = columns(v, p.Lo, p.Hi); err != nil {
				return fmt.Errorf("%s: %s: %w", m.Path, p.Grad, err)
			}
		} else if ok {
			grads[i] = v
		}
	}
	if m.Kind == reference.Loss {
		grads = []reference.Tensor{{Data: []float64{lossGradient}}}
	}
	in, params := pass.Backward(grads)
	for i, p := range m.Inputs {
		c.put(p.Grad, p, in[i])
	}
	if logits, ok := pass.Extra["logits.grad"]; ok {
		c.values[m.Outputs[0].Grad] = logits
	}
	for name, g := range params {
		if before, ok := c.gradient[name]; ok { // tied weights
			g.Data = added(before.Data, g.Data)
		}
		c.gradient[name] = g
	}
	return nil
}

// put stores a port, which may be columns of a wider tensor that grows as they arrive.
func (c *chain) put(name string, p reference.Port, v reference.Tensor) {
	if p.Hi == 0 {
		c.values[name] = v
		return
	}
	rows := v.Dims[0]
	old := c.values[name]
	width := p.Hi
	if len(old.Data) > 0 {
		width = max(width, len(old.Data)/rows)
	}
	wide := reference.Tensor{Dims: []int{rows, width}, Data: make([]float64, rows*width)}
	for r := range rows {
		if w := len(old.Data) / rows; w > 0 {
			copy(wide.Data[r*width:], old.Data[r*w:(r+1)*w])
		}
		copy(wide.Data[r*width+p.Lo:r*width+p.Hi], v.Data[r*(p.Hi-p.Lo):])
	}
	c.values[name] = wide
}

// newChain returns the chain of a repeat, with the recorded choices as far as there are any.
func (j *judge) newChain(r step.Repeat) (*chain, error) {
	batch, err := j.folder.Batch(r)
	if err != nil {
		return nil, err
	}
	choices, err := j.choices(r)
	if err != nil {
		return nil, err
	}
	param := func(name string) (reference.Tensor, error) {
		v, err := j.folder.Weight(name)
		return v.Tensor, err
	}
	return &chain{modules: finest(j.modules), call: reference.Call{Batch: batch, Choices: choices, Param: param}}, nil
}

// chainBound is wholeBound for gradients that are compared end to end: their rounding is that of all
// layers, and one flipped choice changes more than rounding does.
const chainBound = 4

// endToEnd judges the gradients that no module could, by a pass through the whole model.
func (j *judge) endToEnd() error {
	left := map[string]bool{}
	for _, m := range finest(j.modules) {
		for _, name := range m.Params {
			if _, ok := j.folder.DType(step.Gradients, name); ok && !j.finished[name] {
				left[name] = true
			}
		}
	}
	if len(left) == 0 || j.incomplete() || len(j.folder.Info.Auxiliary) > 0 {
		return nil
	}
	var exact map[string]reference.Tensor
	var floors []map[string]reference.Tensor
	ways, _ := j.roundings(j.byPath["model.embed_tokens"], step.Repeat{})
	for i, way := range append([]reference.Rounding{{}}, ways...) {
		sum, err := j.chainGradients(way)
		if err != nil {
			return err
		}
		if i == 0 {
			exact = sum
		} else {
			floors = append(floors, sum)
		}
	}
	line := &ModuleLine{Path: "gradients end to end", Kind: "chain", Layer: -1, Verdict: Right, Precision: formatNames[ways[0].Format]}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		want, ok := exact[name]
		if !ok {
			continue
		}
		var noise [][]float64
		for _, f := range floors {
			noise = append(noise, f[name].Data)
		}
		c, err := j.gradient(name, want.Data, noise, []int{len(want.Data)})
		if err != nil && !errors.Is(err, step.ErrAbsent) {
			return err
		}
		if c != nil {
			c.Strain *= wholeBound / chainBound
			c.Resolution *= chainBound / wholeBound
			c.Scaled = c.Scaled && c.Wrong()
			line.Comparisons = append(line.Comparisons, *c)
			j.finished[name] = true
		}
	}
	if len(line.wrong()) > 0 {
		line.Verdict = Wrong
	}
	j.report.Modules = append(j.report.Modules, line)
	j.report.note(line.Comparisons)
	j.tell(line)
	return nil
}

// chainGradients returns the gradients of all parameters, summed over the micro-batches.
func (j *judge) chainGradients(way reference.Rounding) (map[string]reference.Tensor, error) {
	repeats := j.folder.Repeats()
	if len(repeats) == 0 {
		repeats = []step.Repeat{{}}
	}
	sum := map[string]reference.Tensor{}
	for _, r := range repeats {
		c, err := j.newChain(r)
		if err != nil {
			return nil, err
		}
		c.call.Rounding, c.call.Fast = way, way.Format == reference.BF16
		if err := c.run(j.folder.Info.LossScale / float64(len(repeats))); err != nil {
			return nil, err
		}
		for name, g := range c.gradient {
			if before, ok := sum[name]; ok {
				g.Data = added(before.Data, g.Data)
			}
			sum[name] = g
		}
	}
	return sum, nil
}
