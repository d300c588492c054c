package referee

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spmoe/moe/reference"
)

// fits are mistakes that have a constant, which the run alone knows. It is the one under which the
// reference is nearest to the recorded output. Name and sentence have a place for it.
var fits = map[string]struct {
	name, says string
	from, to   float64
}{
	"scale_other":          {"scale_other:%.8g", "the scores are scaled by %.4g × the scale that config.json says", 1.0 / 64, 64},
	"window_other":         {"window_other:%.0f", "there is a sliding window of %.0f tokens", 1, 0},
	"chunk_other":          {"chunk_other:%.0f", "the mask lets tokens see only their own chunk of %.0f tokens", 1, 4096},
	"documents_other":      {"documents_other:%.0f", "the mask cuts each sequence at token %.0f, as if another document began there", 1, 0},
	"softcap_other":        {"softcap_other:%.6g", "the scores are capped: c·tanh(score / c), with a c of %.4g", 0.1, 1000},
	"rope_base_other":      {"rope_base_other:%.6g", "the rotary base is %.4g, not config.json's rope_theta", 1e2, 1e8},
	"act_clamped":          {"act_clamped:%.6g", "gate and up are clamped at %.4g", 1e-3, 1000},
	"rope_positions_other": {"rope_positions_other:%.6g", "the positions of the rotary embedding are multiplied by %.4g", 1.0 / 64, 64},

	// A table that is written by hand has both of these.
	"rope_base_10000": {"rope_positions_other:%.6g,10000", "the rotary base is 10,000, not config.json's rope_theta, and the positions are multiplied by %.4g", 1.0 / 64, 64},

	"norm_no_eps":      {"norm_eps_%.3g", "the norm's eps is %.2g", 1e-9, 1},
	"norm_eps_outside": {"norm_eps_outside:%.3g", "the norm's eps is outside the root: it divides by rms + eps, with an eps of %.2g", 1e-9, 1},
}

// fitted returns the mistakes with their constants.
func (t *trial) fitted(few reference.Call, line *ModuleLine) (all []hypothesis) {
	if len(line.wrong("output")) == 0 || t.held[t.module.Outputs[0].Label()] == nil {
		return nil
	}
	for _, m := range reference.Mistakes() {
		f, ok := fits[m.Name]
		if !ok || !slices.Contains(m.Kinds, t.module.Kind) {
			continue
		}
		tried := map[string]float64{}
		miss := func(x float64) float64 {
			name := fmt.Sprintf(f.name, x)
			if _, ok := tried[name]; !ok {
				tried[name] = t.missUnder(hypothesis{name: name}, few)
			}
			return tried[name]
		}
		if f.to == 0 {
			f.to = float64(t.call.Batch.Seq)
		}
		constant := leastAt(f.from, f.to, t.missed(t.exact, few)/2, miss)
		all = append(all, hypothesis{name: fmt.Sprintf(f.name, constant), says: fmt.Sprintf(f.says, constant)})
	}
	return all
}

// leastAt returns where f is least between two positive numbers: on grids of ratios, each finer, as
// long as that helps. It gives up on a constant that leaves more than most.
func leastAt(from, to, most float64, f func(float64) float64) float64 {
	const points = 36
	best, nearest := from, inf
	for ratio := math.Pow(to/from, 1.0/points); ratio > 1.0000001 && (ratio > 1.003 || nearest < most); ratio = math.Pow(ratio, 0.25) {
		center, steps, before := best, 5, nearest
		if math.IsInf(nearest, 1) {
			center, steps = math.Sqrt(from*to), points/2
		}
		for i := -steps; i <= steps; i++ {
			x := center * math.Pow(ratio, float64(i))
			if e := f(x); e < nearest {
				best, nearest = x, e
			}
		}
		if ratio < 1.003 && nearest > 0.99*before {
			break
		}
	}
	return best
}

// lostChoices looks for choices of experts that add nothing: each token's output is taken apart
// into the contributions of its choices, by least squares.
func (t *trial) lostChoices() *Cause {
	gate := t.layerPath() + "mlp.gate"
	chosen, ok := t.call.Given(gate + ".indices")
	out := t.held[t.module.Outputs[0].Label()]
	if t.module.Kind != reference.Experts || !ok || out == nil {
		return nil
	}
	k, width := len(chosen.Data)/t.tokens, len(out.Data)/t.tokens
	parts := make([][]float64, k)
	for i := range k {
		call := t.call
		kept := reference.Tensor{Dims: chosen.Dims, Data: make([]float64, len(chosen.Data))}
		for token := range t.tokens {
			kept.Data[token*k+i] = 1
		}
		call.Given = with(call.Given, outcome{gate + ".kept": kept})
		o, err := t.module.Run(call)
		if err != nil {
			return nil
		}
		parts[i] = o[t.module.Outputs[0].Label()].Data
	}
	lost, total, dropped := map[int]int{}, map[int]int{}, 0 // by expert
	for token := range t.tokens {
		row := func(x []float64) []float64 { return x[token*width : (token+1)*width] }
		var rows [][]float64
		for _, p := range parts {
			rows = append(rows, row(p))
		}
		a, rest, ok := solve(row(out.Data), rows)
		for i, expert := range chosen.Data[token*k : (token+1)*k] {
			total[int(expert)]++
			switch {
			case normOf(row(out.Data), nil) == 0 || ok && rest < 0.1 && math.Abs(a[i]) < 0.1:
				lost[int(expert)]++
				dropped++
			case !ok || rest > 0.1 || math.Abs(a[i]-1) > 0.1:
				return nil // something else than lost choices
			}
		}
	}
	if dropped == 0 {
		return nil
	}
	says := fmt.Sprintf("tokens are dropped: %d of %d choices of experts add nothing, those of experts %s, as a limit of capacity does", dropped, len(chosen.Data), joinInts(slices.Sorted(maps.Keys(lost))))
	for e, n := range lost {
		if n == total[e] && len(lost) == 1 {
			says = fmt.Sprintf("an expert is missing: no token gets anything from expert %d", e)
		}
	}
	return &Cause{Name: "tokens_dropped", Says: says}
}
