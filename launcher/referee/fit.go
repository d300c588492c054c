package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// Some mistakes have a constant that the run alone knows. It is the one under which the reference
// is nearest to the recorded output.

// fit is such a mistake. Its name and sentence have a place for the constant.
type fit struct {
	base, name, says string // base: the mistake of this name has the same kinds
	from, to         float64
}

var fits = []fit{
	{"scale_other", "scale_other:%.6g", "the scores are scaled by %.4g × the scale that config.json says", 1.0 / 64, 64},
	{"window_other", "window_other:%.0f", "there is a sliding window of %.0f tokens", 0, 0},
	{"norm_no_eps", "norm_eps_%.3g", "the norm's eps is %.2g", 1e-9, 1},
	{"norm_eps_outside", "norm_eps_outside:%.3g", "the norm's eps is outside the root: it divides by rms + eps, with an eps of %.2g", 1e-9, 1},
}

// fitted returns the mistakes with their constants. few may be nil.
func (t *trial) fitted(few *reference.Call, line *ModuleLine) (all []hypothesis) {
	if len(line.wrong("output")) == 0 || t.out[0] == nil {
		return nil
	}
	call := t.call
	if few != nil {
		call = *few
	}
	for _, m := range reference.Mistakes() {
		i := slices.IndexFunc(fits, func(f fit) bool { return f.base == m.Name })
		if i < 0 || !slices.Contains(m.Kinds, t.module.Kind) {
			continue
		}
		f := fits[i]
		error := func(x float64) float64 { return t.miss(call, fmt.Sprintf(f.name, x)) }
		constant := 0.0
		if m.Name == "window_other" {
			constant = t.window(line, error)
		} else {
			constant = least(f.from, f.to, error)
		}
		name := fmt.Sprintf(f.name, constant)
		all = append(all, hypothesis{name, fmt.Sprintf(f.says, constant), func(c *reference.Call) { c.Mistake = name }, t.ways})
	}
	return all
}

// window returns the width of a sliding window. The first wrong token of a sequence is the first
// that lacks a key, or one soon after it, where that key counts.
func (t *trial) window(line *ModuleLine, error func(float64) float64) (best float64) {
	first, nearest := t.call.Batch.Seq, inf
	for _, token := range t.far(line, "output") {
		first = min(first, token%t.call.Batch.Seq)
	}
	for width := max(1, first-8); width <= first; width++ {
		if e := error(float64(width)); e < nearest {
			best, nearest = float64(width), e
		}
	}
	return best
}

// miss is how far the recorded output is from the reference under a mistake.
func (t *trial) miss(call reference.Call, mistake string) float64 {
	call.Mistake = mistake
	pass, err := t.module.Forward(call)
	if err != nil {
		return inf
	}
	got := rowsOf(t.out[0].Tensor, t.tokens, selected(call)).Data
	if len(got) != len(pass.Out[0].Data) {
		return inf
	}
	return distance(got, pass.Out[0].Data, nil)
}

// least returns where f is least between two positive numbers: on a grid of ratios, then between
// the neighbours of the best, by golden sections.
func least(from, to float64, f func(float64) float64) float64 {
	const points, golden = 36, 0.6180339887
	ratio := math.Pow(to/from, 1.0/points)
	best, error := from, inf
	for i := range points + 1 {
		x := from * math.Pow(ratio, float64(i))
		if e := f(x); e < error {
			best, error = x, e
		}
	}
	lo, hi := math.Log(best/ratio), math.Log(best*ratio)
	a, b := hi-golden*(hi-lo), lo+golden*(hi-lo)
	at, bt := f(math.Exp(a)), f(math.Exp(b))
	for hi-lo > 1e-5 {
		if at < bt {
			hi, b, bt = b, a, at
			a = hi - golden*(hi-lo)
			at = f(math.Exp(a))
		} else {
			lo, a, at = a, b, bt
			b = lo + golden*(hi-lo)
			bt = f(math.Exp(b))
		}
	}
	return math.Exp((lo + hi) / 2)
}

// turned returns half of an expert's fused weight of gate and up as it is if its memory holds the
// transposed matrix.
func (j *judge) turned(param string) (v step.Value, err error) {
	stem, ok := strings.CutSuffix(param, "gate_proj.weight")
	if !ok {
		if stem, ok = strings.CutSuffix(param, "up_proj.weight"); !ok {
			return v, step.ErrAbsent
		}
	}
	var fused []float64
	for _, half := range []string{"gate_proj.weight", "up_proj.weight"} {
		if v, err = j.folder.Weight(stem + half); err != nil {
			return v, err
		}
		fused = append(fused, v.Data...)
	}
	n, cols := len(fused), v.Dims[len(v.Dims)-1]
	half := make([]float64, n/2)
	for i := range half {
		at := i
		if strings.HasSuffix(param, "up_proj.weight") {
			at += n / 2
		}
		rows := n / cols
		half[i] = fused[at%rows*cols+at/rows]
	}
	v.Data = half
	return v, nil
}
