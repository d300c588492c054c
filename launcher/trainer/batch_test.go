package trainer

import (
	"slices"
	"testing"
)

// The target of a token is the one after it, in its own row.
func TestBatch(t *testing.T) {
	r := &rank{cfg: Config{Seq: 3}, inputs: make([]int32, 9), targets: make([]int32, 9)}
	for _, c := range []struct{ rows, inputs, targets []int32 }{
		{[]int32{1, 2, 3, 4, 11, 12, 13, 14}, []int32{1, 2, 3, 11, 12, 13}, []int32{2, 3, 4, 12, 13, 14}},
		{[]int32{5, 6, 7, 8}, []int32{5, 6, 7}, []int32{6, 7, 8}},
		{nil, nil, nil},
	} {
		b := r.batch(c.rows, 20)
		if !slices.Equal(b.Inputs, c.inputs) || !slices.Equal(b.Targets, c.targets) || b.Seq != 3 || b.GlobalSequences != 20 {
			t.Errorf("%v gives %+v, want inputs %v, targets %v", c.rows, b, c.inputs, c.targets)
		}
	}
}

func TestMicroBatch(t *testing.T) {
	for _, c := range []struct{ batch, micro, ranks, want int }{
		{16, 0, 1, 16}, {16, 0, 4, 4}, {16, 3, 4, 3}, {16, 4, 4, 4}, {16, 1 << 50, 4, 4}, {4, 1, 4, 1},
	} {
		if got := (Config{Batch: c.batch, MicroBatch: c.micro}).microBatch(c.ranks); got != c.want {
			t.Errorf("batch %d, micro_batch %d on %d ranks: passes of %d, want %d", c.batch, c.micro, c.ranks, got, c.want)
		}
	}
}
