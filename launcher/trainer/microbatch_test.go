package trainer

import (
	"testing"

	"spmoe/launcher/trainer/state"
)

// The passes of a step have each of its rows once, in order, and all but the last say that more
// follow.
func TestPasses(t *testing.T) {
	for _, c := range []struct{ sequences, micro, passes int }{{4, 4, 1}, {4, 2, 2}, {5, 2, 3}, {3, 1, 3}} {
		d := &state.DataLoader{Seq: 2, Batch: 40, Rows: make([]int32, 3*c.sequences), Inputs: make([]int32, 2*c.micro), Targets: make([]int32, 2*c.micro)}
		for i := range d.Rows {
			d.Rows[i] = int32(i)
		}
		if d.Passes() != c.passes {
			t.Errorf("%+v: %d passes", c, d.Passes())
		}
		next := int32(0)
		for i := range d.Passes() {
			b := d.MicroBatch(i, state.StepDraws{})
			if b.More != (i < c.passes-1) || b.GlobalSequences != 40 {
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
