package ep

import (
	"slices"
	"testing"

	"spmoe/collective"
)

// TestCountWhole: the rows of an expert's copies are those that all ranks of all groups send to it,
// and the rows before are those of earlier groups.
func TestCountWhole(t *testing.T) {
	all := []int32{1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400, 1000, 2000, 3000, 4000}
	layout := Layout{Experts: 4, Ranks: 2, PerRank: 2}
	for _, c := range []struct {
		world, rank   int // rank of its group
		whole, before []int32
	}{
		{0, 0, []int32{1111, 2222}, []int32{0, 0}},
		{1, 1, []int32{3333, 4444}, []int32{0, 0}},
		{2, 0, []int32{1111, 2222}, []int32{11, 22}},
		{3, 1, []int32{3333, 4444}, []int32{33, 44}},
	} {
		r := replicas{world: collective.NewDry([][]int{{0, 1, 2, 3}}, c.world), first: c.world - c.rank, all: all}
		var h Handle
		r.countWhole(&h, layout, c.rank)
		if !slices.Equal(h.Whole, c.whole) || !slices.Equal(h.Before, c.before) {
			t.Errorf("rank %d: whole %v, before %v, want %v and %v", c.world, h.Whole, h.Before, c.whole, c.before)
		}
	}
}
