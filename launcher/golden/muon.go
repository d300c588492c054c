package golden

// Steps of Muon and Newton-Schulz iterations against reference outputs.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

const (
	newtonSchulzInput = "ns_in"
	firstMatrix       = "_p0_0"
	// The bounds of ‖x - ref‖ / ‖ref‖. Steps with BF16 products differ in their roundings, which
	// the references make elsewhere.
	muonBound         = 1e-2
	newtonSchulzBound = 1e-5
)

// muonRate is the learning rate of the reference steps, which have the constants of
// torch.optim.Muon otherwise: momentum 0.95, weight decay 0.1, Nesterov, and Newton-Schulz in BF16.
const muonRate = 0.02

// holdsMuon reports whether a file has references of Muon.
func (c *mxCheck) holdsMuon() bool {
	if c.has(newtonSchulzInput) {
		return true
	}
	for _, scale := range optim.MuonScales() {
		if c.has(scale + firstMatrix) {
			return true
		}
	}
	return false
}

// muon compares matrices SCALE_pN_STEP after steps with gradients SCALE_gN_STEP, where step 0 is
// the initial matrix, and ns_out_f64 with the iterations from ns_in.
func (c *mxCheck) muon() {
	for _, scale := range optim.MuonScales() {
		for n := 0; c.err == nil && c.has(fmt.Sprintf("%s_p%d_0", scale, n)); n++ {
			c.muonSteps(scale, n)
		}
	}
	if c.err != nil || !c.has(newtonSchulzInput) {
		return
	}
	x := c.tensor(newtonSchulzInput, tensor.FP32, -1, -1)
	c.matrix("ns_out_f64", optim.NewtonSchulz(c.ex, x, tensor.FP32).F32(), newtonSchulzBound)
}

// muonSteps makes steps while there are gradients, and compares the matrices that the file has.
func (c *mxCheck) muonSteps(scale string, n int) {
	first := c.tensor(fmt.Sprintf("%s_p%d_0", scale, n), tensor.FP32, -1, -1)
	if c.err != nil {
		return
	}
	rows, cols := first.Dim(0), first.Dim(1)
	o, g, err := muonOf(c.ex, scale, rows, cols)
	if err != nil {
		c.err = err
		return
	}
	for p := range o.Pieces {
		copy(p.Master, first.F32())
	}
	for step := 1; c.has(fmt.Sprintf("%s_g%d_%d", scale, n, step)); step++ {
		gradient := c.tensor(fmt.Sprintf("%s_g%d_%d", scale, n, step), tensor.FP32, rows, cols)
		if c.err != nil {
			return
		}
		copy(g.Grad.F32(), gradient.F32())
		if c.err = o.Apply(muonRate, 1); c.err != nil {
			return
		}
		if name := fmt.Sprintf("%s_p%d_%d", scale, n, step); c.has(name) {
			c.matrix(name, g.Work.F32(), muonBound)
		}
	}
}

// muonOf returns an optimizer of one matrix.
func muonOf(ex *tensor.Exec, scale string, rows, cols int) (*optim.Optimizer, *moe.Group, error) {
	settings := optim.DefaultConfig()
	settings.Name, settings.Scale = "muon", scale
	rule, err := settings.Rule()
	if err != nil {
		return nil, nil, err
	}
	g := &moe.Group{Name: "matrix", Work: tensor.New(tensor.FP32, rows*cols), Grad: tensor.New(tensor.FP32, rows*cols)}
	g.Params = []*moe.Param{{Name: "matrix", Dims: []int{rows, cols}, Class: moe.Linear, Work: g.Work, Grad: g.Grad}}
	return optim.New(ex, []*moe.Group{g}, collective.NewWorld(1).Comm(0), rule), g, nil
}

// matrix adds a line that compares a matrix with the file's.
func (c *mxCheck) matrix(name string, got []float32, bound float64) {
	want, err := c.file.Float32s(name)
	if err == nil && len(want) != len(got) {
		err = fmt.Errorf("%s has %d elements: %d are expected", name, len(want), len(got))
	}
	if err != nil {
		c.err = err
		return
	}
	l := relativeL2(name, got, want)
	l.Bound = bound
	c.lines = append(c.lines, l)
}
