package referee

import (
	"fmt"
	"math"
	"slices"

	"spmoe/moe/reference"
)

// otherWeight says that a module used another weight than the folder has: the gradient of the weight
// does not depend on it and is right, what else the module makes is not.
func (t *trial) otherWeight(line *ModuleLine) *Cause {
	right := 0
	for _, c := range line.Comparisons {
		if c.What == "gradient" && !c.Wrong() {
			right++
		}
	}
	if t.module.Kind != reference.Linear || right == 0 || len(line.wrong("gradient")) > 0 || len(line.wrong("output")) == 0 || len(line.wrong("grad_input")) == 0 {
		return nil
	}
	return &Cause{Name: "weight_other", Says: "the weight that it used is not the one in the folder: the weight's own gradient is right, the output and the gradient of the input are not"}
}

// lostChoices looks for choices of experts that add nothing: each token's output is taken apart
// into the contributions of its choices, by least squares.
func (t *trial) lostChoices() *Cause {
	path := fmt.Sprintf("model.layers.%d.mlp.gate", t.module.Layer)
	chosen, ok := t.call.Choices[path+".indices"]
	if t.module.Kind != reference.Experts || !ok || t.out[0] == nil || len(chosen.Data)%t.tokens != 0 {
		return nil
	}
	k := len(chosen.Data) / t.tokens
	var parts []reference.Tensor
	for i := range k {
		call := t.call
		kept := reference.Tensor{Dims: chosen.Dims, Data: make([]float64, len(chosen.Data))}
		for token := range t.tokens {
			kept.Data[token*k+i] = 1
		}
		call.Choices = map[string]reference.Tensor{path + ".indices": chosen, path + ".kept": kept}
		pass, err := t.module.Forward(call)
		if err != nil {
			return nil
		}
		parts = append(parts, pass.Out[0])
	}
	width := len(t.out[0].Data) / t.tokens
	bound := worstBound * 0.01
	lost, total := map[int]int{}, map[int]int{}
	late, dropped, last := map[int]bool{}, 0, 0
	for token := range t.tokens {
		y := t.out[0].Data[token*width : (token+1)*width]
		rows := make([][]float64, k)
		for i, p := range parts {
			rows[i] = p.Data[token*width : (token+1)*width]
		}
		a, rest, ok := solve(y, rows)
		for i := range k {
			expert := int(chosen.Data[token*k+i])
			total[expert]++
			switch {
			case normOf(y, nil) == 0 || ok && math.Abs(a[i]) < 0.1:
				lost[expert]++
				dropped++
				late[expert] = true
				if i == k-1 {
					last++
				}
			case !ok || rest > bound || math.Abs(a[i]-1) > 0.1:
				return nil // something else than lost choices
			case late[expert]:
				delete(late, expert) // a later token is computed
			}
		}
	}
	if dropped == 0 {
		return nil
	}
	says := fmt.Sprintf("tokens are dropped: %d of %d choices of experts add nothing", dropped, len(chosen.Data))
	var missing []int
	for e, n := range lost {
		if n == total[e] {
			missing = append(missing, e)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) == len(lost):
		says = fmt.Sprintf("experts are missing: no token gets anything from %s", joinInts(missing))
	case last == dropped:
		says += ", always the last choice"
	case len(late) == len(lost):
		says += fmt.Sprintf(", those of the last tokens of %d experts: a limit of capacity", len(lost))
	}
	return &Cause{Name: "tokens_dropped", Says: says}
}
