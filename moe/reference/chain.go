package reference

import (
	"fmt"
	"slices"
	"strings"
)

// Chain is one forward and backward pass of the whole model, by its finest modules: what enters the
// first is the batch, and what leaves each enters the next.
type Chain struct {
	Config *Config
	Call   Call // without inputs; the chain adds the choices that it makes
	// Losses are the factors of the losses, by path: {"loss": 1}. What is not named counts nothing.
	Losses map[string]float64

	Values    map[string]Tensor // by the names of ports, and of their gradients
	Gradients map[string]Tensor // by parameter
}

// fine reports whether the chain runs a module: one without finer ones, or a loss that counts.
func (c *Chain) fine(m *Module) bool {
	return len(m.Children) == 0 && (m.Kind != Balance || c.Losses[m.Path] != 0)
}

// ofGradients reports whether a module is a sum of gradients.
func (m *Module) ofGradients() bool {
	return (m.Kind == Handover || m.Kind == Residual) && strings.HasSuffix(m.Path, ".grad")
}

// Run computes all values and gradients. Each module runs forward again before it runs backward, so
// that only its ports are held.
func (c *Chain) Run() error {
	c.Values, c.Gradients = map[string]Tensor{}, map[string]Tensor{}
	modules := c.Config.Modules()
	for _, m := range modules {
		if !c.fine(m) || m.ofGradients() {
			continue
		}
		pass, err := c.forward(m)
		if err != nil {
			return err
		}
		for i, p := range m.Outputs {
			c.put(p.Name, p, pass.Out[i])
		}
		if name := m.Path + ".indices"; m.Kind == Router && c.Call.Choices[name].Data == nil {
			c.Call.Choices[name] = pass.Extra["indices"]
		}
	}
	for _, m := range slices.Backward(modules) {
		if c.fine(m) && (m.ofGradients() || m.Kind != Handover && m.Kind != Residual) {
			if err := c.backward(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Chain) forward(m *Module) (*Pass, error) {
	call := c.Call
	tokens := call.Batch.Batch * call.Batch.Seq
	for _, p := range m.Inputs {
		x, ok := c.Values[p.Name]
		if !ok {
			return nil, fmt.Errorf("%s: nothing computes %s", m.Path, p.Name)
		}
		call.In = append(call.In, p.Cut(x, tokens))
	}
	return m.Forward(call)
}

func (c *Chain) backward(m *Module) error {
	pass, err := c.forward(m)
	if err != nil {
		return err
	}
	if m.ofGradients() {
		c.put(m.Outputs[0].Name, m.Outputs[0], pass.Out[0])
		return nil
	}
	gradOut := make([]Tensor, len(m.Outputs))
	for i, p := range m.Outputs {
		gradOut[i] = p.Cut(c.Values[p.Grad], c.Call.Batch.Batch*c.Call.Batch.Seq)
	}
	if m.Kind == Loss || m.Kind == Balance {
		gradOut[0] = Tensor{Data: []float64{c.Losses[m.Path]}}
	}
	in, params := pass.Backward(gradOut)
	for i, p := range m.Inputs {
		c.put(p.Grad, p, in[i])
	}
	if m.Kind == Router {
		c.Values[m.Outputs[0].Grad] = pass.Extra["logits.grad"]
	}
	for name, g := range params { // a tied weight has several
		for i, v := range c.Gradients[name].Data {
			g.Data[i] += v
		}
		c.Gradients[name] = g
	}
	return nil
}

// put stores a port, which may be columns of a wider tensor that grows as they arrive.
func (c *Chain) put(name string, p Port, x Tensor) {
	if p.Hi == 0 {
		c.Values[name] = x
		return
	}
	rows, old := x.Dims[0], c.Values[name].Data
	before, part := len(old)/rows, p.Hi-p.Lo
	width := max(before, p.Hi)
	wide := make([]float64, rows*width)
	for r := range rows {
		copy(wide[r*width:], old[r*before:(r+1)*before])
		copy(wide[r*width+p.Lo:], x.Data[r*part:(r+1)*part])
	}
	c.Values[name] = Tensor{Dims: []int{rows, width}, Data: wide}
}
