package referee

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spmoe/moe/reference"
)

// otherWeight says that a projection used another weight than the folder has: the gradient of the
// weight does not depend on it and is right, what else the module makes is not.
func (t *trial) otherWeight(line *ModuleLine) *Cause {
	judged := line.worst("gradient")
	if t.module.Kind != reference.Linear || judged == nil || judged.Wrong() || len(line.wrong("output")) == 0 || len(line.wrong("grad_input")) == 0 {
		return nil
	}
	return &Cause{Name: "weight_other", Says: "the weight that it used is not the one in the folder: the weight's own gradient is right, the output and the gradient of the input are not"}
}

// lostChoices looks for choices of experts that add nothing: each token's output is taken apart
// into the contributions of its choices, by least squares.
func (t *trial) lostChoices() *Cause {
	gate := t.layerPath() + "mlp.gate"
	chosen := t.call.Choices[gate+".indices"]
	if t.module.Kind != reference.Experts || len(chosen.Data) == 0 || t.out[0] == nil {
		return nil
	}
	k := len(chosen.Data) / t.tokens
	parts := make([][]float64, k)
	for i := range k {
		call := t.call
		kept := reference.Tensor{Dims: chosen.Dims, Data: make([]float64, len(chosen.Data))}
		for token := range t.tokens {
			kept.Data[token*k+i] = 1
		}
		call.Choices = map[string]reference.Tensor{gate + ".indices": chosen, gate + ".kept": kept}
		pass, err := t.module.Forward(call)
		if err != nil {
			return nil
		}
		parts[i] = pass.Out[0].Data
	}
	lost, total := map[int]int{}, map[int]int{} // by expert
	width := len(t.out[0].Data) / t.tokens
	rows := make([][]float64, k)
	for token := range t.tokens {
		for i, p := range parts {
			rows[i] = p[token*width : (token+1)*width]
		}
		y := t.out[0].Data[token*width : (token+1)*width]
		a, rest, ok := solve(y, rows)
		for i, expert := range chosen.Data[token*k : (token+1)*k] {
			total[int(expert)]++
			switch {
			case normOf(y, nil) == 0 || ok && rest < 0.1 && math.Abs(a[i]) < 0.1:
				lost[int(expert)]++
			case !ok || rest > 0.1 || math.Abs(a[i]-1) > 0.1:
				return nil // something else than lost choices
			}
		}
	}
	dropped := 0
	for _, n := range lost {
		dropped += n
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
