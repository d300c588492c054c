package moe

// Weight gradients of experts that are made for several passes at once.

import (
	"slices"
	"testing"

	"spmoe/tensor"
)

func TestWgradPasses(t *testing.T) {
	for _, c := range []struct{ experts, topK, tokens, want int }{
		{32, 4, 4096, 1}, {32, 4, 1024, 1}, {32, 4, 1023, 2}, {256, 4, 512, 16}, {256, 8, 512, 8}, {256, 8, 700, 6}, {8, 2, 1, 512}, {8, 2, 0, 1}, {32, 1, 4095, 2},
	} {
		cfg := with(tiny(), func(m *Config) { m.Experts, m.TopK = c.experts, c.topK })
		if got := cfg.WgradPasses(Unquantized(tensor.BF16), c.tokens); got != c.want {
			t.Errorf("%d of %d experts, passes of %d tokens: %d at once, want %d", c.topK, c.experts, c.tokens, got, c.want)
		}
	}
}

// The rows of a group are those of the rest and then those of the parts, in their order. If more
// follow, whole blocks are multiplied and the others become the rest. Otherwise none is left.
func TestConcatenate(t *testing.T) {
	const unit = 4
	ex, next := tensor.NewExec(), float32(0)
	part := func(counts ...int32) wgradRows {
		p := wgradRows{ends: make([]int32, len(counts))}
		rows := int32(0)
		for g, n := range counts {
			rows += n
			p.ends[g] = rows
		}
		p.dy, p.x = tensor.New(tensor.FP32, int(rows), 16), tensor.New(tensor.FP32, int(rows), 32)
		for r := range int(rows) {
			next++
			p.dy.Index(r).F32()[0], p.x.Index(r).F32()[31] = next, -next
		}
		return p
	}
	rest := newRestRows(&ex.Arena, unit, 2, part(0, 0))
	var got, want [2][]float32
	for _, pass := range []struct {
		parts []wgradRows
		more  bool
		left  [2]int32
	}{
		{[]wgradRows{part(9, 5, 3), part(9, 2, 0)}, true, [2]int32{3, 3}},
		{[]wgradRows{part(9, 0, 2)}, true, [2]int32{3, 1}},
		{[]wgradRows{part(9, 3, 5), part(9, 0, 1)}, false, [2]int32{}},
	} {
		for g := range want {
			for _, p := range pass.parts {
				lo, hi := p.group(1 + g)
				for r := lo; r < hi; r++ {
					want[g] = append(want[g], p.dy.Index(r).F32()[0])
				}
			}
		}
		var after *restRows
		if pass.more {
			after = rest
		}
		c := concatenate(ex, pass.parts, 1, 3, rest, after)
		if c.copy(ex, false); pass.more {
			c.copy(ex, true)
		}
		all := c.all
		for g := range got {
			lo, hi := all.group(g)
			if pass.more && (hi-lo)%unit != 0 {
				t.Errorf("%d rows of group %d, want whole blocks", hi-lo, g)
			}
			for r := lo; r < hi; r++ {
				dy, x := all.dy.Index(r).F32()[0], all.x.Index(r).F32()[31]
				if got[g] = append(got[g], dy); x != -dy {
					t.Errorf("row %d: %v is next to %v", r, dy, x)
				}
			}
			if n := len(want[g]) - len(got[g]); n != int(pass.left[g]) || pass.more && rest.counts[g] != pass.left[g] {
				t.Errorf("group %d: %d rows are left, and counted as %d, want %d", g, n, rest.counts[g], pass.left[g])
			}
		}
	}
	for g := range got {
		if !slices.Equal(got[g], want[g]) {
			t.Errorf("group %d has rows %v, want %v", g, got[g], want[g])
		}
	}
}
