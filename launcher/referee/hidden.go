package referee

import (
	"strings"

	"spmoe/moe/reference"
)

// What is computed with each mistake of its kind is bounded: the weights, the tokens of a module
// that takes each alone, and those of a sequence.
const (
	mostWeights  = 1 << 22
	mostAlone    = 64
	mostSequence = 256
)

// weighs returns the number of a module's weights.
func (j *judge) weighs(m *reference.Module) (n int) {
	for _, name := range m.Params {
		dims, _ := j.folder.Model.ParamDims(name)
		n += dims[0] * dims[len(dims)-1]
	}
	return n
}

// hidden returns the mistakes that rounding hides in a right trial.
func (t *trial) hidden() (all []Cause) {
	few := t.call
	if t.module.Kind.TokenWise() {
		for i := range min(t.tokens, mostAlone) {
			few.Tokens = append(few.Tokens, i*t.tokens/min(t.tokens, mostAlone))
		}
	} else {
		few.Sequences = []int{0}
	}
	rows := few.Rows(t.module.Kind)
	if t.judge.weighs(t.module) > mostWeights || len(rows) > mostSequence {
		return nil
	}
	pairs := make([]tensorPair, len(t.module.Outputs))
	for i, p := range t.module.Outputs {
		want := t.exact[p.Label()].Rows(rows, t.tokens)
		if len(want.Dims) > 0 {
			pairs[i] = tensorPair{want: want.Data, rows: want.Dims[0], least: t.least}
		}
		for _, f := range t.floors {
			pairs[i].floors = append(pairs[i].floors, f[p.Label()].Rows(rows, t.tokens).Data)
		}
	}
	trace := t.module.Trace(few)
	for _, h := range t.mistakes(&ModuleLine{}, true) {
		if strings.Contains(h.name, ":") { // that of one expert is never hidden
			continue
		}
		o, err := trace.Run(h.name)
		if err != nil {
			continue
		}
		worst := Comparison{}
		for i, p := range t.module.Outputs {
			pair := pairs[i]
			if pair.got = o[p.Label()].Data; len(pair.got) != len(pair.want) {
				continue
			}
			if c := pair.compareRows("output", p.Name); !(c.Strain <= worst.Strain) {
				worst = c
			}
		}
		if worst.Strain > 0 && !worst.Wrong() {
			all = append(all, Cause{h.name, h.says, worst.Strain})
		}
	}
	return all
}
