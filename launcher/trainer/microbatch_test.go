package trainer

import (
	"testing"

	"spmoe/launcher/trainer/state"
)

// The passes of a step have each of its rows once, in order, and all but the last say that more
// follow.
func TestPasses(t *testing.T) {
	for _, c := range [][]int{{4}, {2, 2}, {4, 2, 1}, {1, 1, 1}} {
		sequences := 0
		for _, n := range c {
			sequences += n
		}
		d := &state.DataLoader{Seq: 2, Batch: 40, Sizes: c, Rows: make([]int32, 3*sequences), Inputs: make([]int32, 2*c[0]), Targets: make([]int32, 2*c[0])}
		for i := range d.Rows {
			d.Rows[i] = int32(i)
		}
		next := int32(0)
		for i := range d.Passes() {
			b := d.MicroBatch(i, state.StepDraws{})
			if b.More != (i < len(c)-1) || len(b.Inputs) != 2*c[i] || b.GlobalSequences != 40 {
				t.Errorf("%+v: pass %d: %+v", c, i, b)
			}
			for j, in := range b.Inputs {
				if in != next || b.Targets[j] != next+1 {
					t.Errorf("%+v: pass %d has %d and target %d, want %d", c, i, in, b.Targets[j], next)
				}
				next++
				if j%2 == 1 { // the last target of a row is no input
					next++
				}
			}
		}
		if int(next) != len(d.Rows) {
			t.Errorf("%+v: %d of %d tokens", c, next, len(d.Rows))
		}
	}
}
