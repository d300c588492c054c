package referee

import (
	"fmt"
	"math"

	"spmoe/moe/reference"
)

// A router's logits have two gradients: that of the weights, which is local, and those of auxiliary
// losses. The recorded gradient of the logits is held against their sum. The gradients of the
// router's weight and input are judged from the recorded one.

// routerGradients is what the judgment of a router's logits needs.
type routerGradients struct {
	recorded, weights *observed
	auxiliary         []float64 // nil: no auxiliary loss
}

// openRouter arranges the output gradients of a router.
func (j *judge) openRouter(t *trial) error {
	ports := t.module.Outputs
	logits, err := j.read(t.module, ports[0].Grad, ports[0], t.repeat)
	if err != nil {
		return err
	}
	weights, err := j.read(t.module, ports[1].Grad, ports[1], t.repeat)
	if err != nil {
		return err
	}
	on := len(j.folder.Info.Auxiliary) > 0
	switch {
	case logits != nil:
		t.gradOut, t.backward = []reference.Tensor{logits.Tensor, {}}, true
	case weights != nil && !on:
		t.gradOut, t.backward = []reference.Tensor{{}, weights.Tensor}, true
	case weights != nil:
		t.backward = false
		j.report.doubt(fmt.Sprintf("%s: an auxiliary loss is on, and the folder has no %s", t.module.Path, ports[0].Grad))
	}
	if logits == nil || weights == nil {
		return nil
	}
	t.router = &routerGradients{recorded: logits, weights: weights}
	if on {
		t.router.auxiliary, err = j.auxiliary(t)
	}
	return err
}

// auxiliary returns the gradient of the auxiliary losses at the logits of a router.
func (j *judge) auxiliary(t *trial) ([]float64, error) {
	sum := make([]float64, len(t.router.recorded.Data))
	for _, loss := range j.folder.Info.Auxiliary {
		m := j.byPath["model."+balanceOf[loss.Kind]]
		if m == nil {
			m = j.byPath[t.module.Path+"."+balanceOf[loss.Kind]]
		}
		if m == nil {
			j.report.doubt(fmt.Sprintf("the auxiliary loss %q of step.json is not known: load_balancing, sequence or z are", loss.Kind))
			continue
		}
		call := t.call
		call.In, call.Rounding = nil, reference.Rounding{}
		mine := -1
		for i, p := range m.Inputs {
			if p.Name == t.module.Outputs[0].Name {
				mine = i
			}
			v, err := j.read(t.module, p.Name, p, t.repeat)
			if err != nil || v == nil {
				return nil, err
			}
			call.In = append(call.In, v.Tensor)
		}
		pass, err := m.Forward(call)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		scale := loss.Coefficient * j.folder.Info.LossScale
		in, _ := pass.Backward([]reference.Tensor{{Data: []float64{scale}}})
		for i, x := range in[mine].Data {
			sum[i] += x
		}
	}
	return sum, nil
}

var balanceOf = map[string]string{"load_balancing": "load_balance", "sequence": "sequence_balance", "z": "z_loss"}

// routerLogits returns the gradient that the weights send to the logits.
func (t *trial) routerLogits(call reference.Call) (reference.Tensor, error) {
	pass, err := t.module.Forward(call)
	if err != nil {
		return reference.Tensor{}, err
	}
	pass.Backward([]reference.Tensor{{}, rowsOf(t.router.weights.Tensor, t.tokens, selected(call))})
	return pass.Extra["logits.grad"], nil
}

// judgeLogits compares the recorded gradient of the logits with the local part and the auxiliary
// losses.
func (t *trial) judgeLogits(exact outcome, floors []outcome, rows []int) Comparison {
	got := rowsOf(t.router.recorded.Tensor, t.tokens, rows)
	local := exact.logits.Data
	if len(local) != len(got.Data) {
		return Comparison{What: "grad_logits", Name: t.router.recorded.name, Statistic: "shape", Strain: inf, Note: fmt.Sprintf("it has shape %v", got.Dims)}
	}
	extra := make([]float64, len(local))
	if t.router.auxiliary != nil {
		extra = rowsOf(reference.Tensor{Dims: t.router.recorded.Dims, Data: t.router.auxiliary}, t.tokens, rows).Data
	}
	want := added(local, extra)
	var noise [][]float64
	for _, f := range floors {
		sum := added(f.logits.Data, extra)
		if t.router.auxiliary != nil && t.router.recorded.DType == "BF16" { // both parts and their sum
			for i := range sum {
				sum[i] = roundBF16(f.logits.Data[i] + roundBF16(extra[i]))
			}
		}
		noise = append(noise, sum)
	}
	c := tensorPair{got.Data, want, noise, got.Dims[0], leastOf(t.router.recorded.DType), t.padding(rows)}.compareRows("grad_logits", t.router.recorded.name)
	if c.Wrong() && t.router.auxiliary != nil {
		if a, rest, ok := solve(got.Data, [][]float64{local, extra}); ok && c.within(rest) {
			c.Note = fmt.Sprintf("it is %s × the local part + %s × the auxiliary loss of step.json", factorText(a[0]), factorText(a[1]))
			if math.Abs(a[1]) < 0.01 {
				c.Note = "the auxiliary loss of step.json has no part in it"
			}
		}
	}
	return c
}

func added(x, y []float64) []float64 {
	sum := make([]float64, len(x))
	for i := range x {
		sum[i] = x[i] + y[i]
	}
	return sum
}

// doubt adds a doubt once.
func (r *Report) doubt(says string) {
	for _, d := range r.Doubts {
		if d == says {
			return
		}
	}
	r.Doubts = append(r.Doubts, says)
}
