package moe

// Weight gradients of experts that are made for several passes at once.

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

func TestWgradPasses(t *testing.T) {
	for _, c := range []struct{ experts, topK, tokens, want int }{
		{32, 4, 4096, 1}, {32, 4, 1024, 1}, {32, 4, 1023, 2}, {256, 4, 512, 16}, {256, 8, 512, 8}, {256, 8, 700, 6}, {8, 2, 1, 512}, {8, 2, 0, 1},
	} {
		cfg := with(tiny(), func(m *Config) { m.Experts, m.TopK = c.experts, c.topK })
		if got := cfg.WgradPasses(Unquantized(tensor.BF16), c.tokens); got != c.want {
			t.Errorf("%d of %d experts, passes of %d tokens: %d at once, want %d", c.topK, c.experts, c.tokens, got, c.want)
		}
	}
}

// gatherCase is a step of so many passes of one sequence of each rank.
type gatherCase struct {
	cfg       Config
	precision string
	recompute Recompute
	wire      ep.Options
	ranks     int
	threads   int
	passes    int
}

const gatherSeq = 32

// step returns the gradients of all ranks by parameter after a step that says which passes have
// others behind them, if gathered, and checks that nothing is kept. Those of the replicated weights
// are rank 0's. before is called with each rank's model in front of it.
func (c gatherCase) step(t *testing.T, gathered bool, before func(m *member) error) map[string][]float32 {
	t.Helper()
	p, err := PrecisionByName(c.precision)
	if err != nil {
		t.Fatal(err)
	}
	all := batchOf(31, c.ranks*c.passes, gatherSeq, c.cfg.Vocab)
	grads := map[string][]float32{}
	var mu sync.Mutex
	err = collective.NewWorld(c.ranks).Run(func(comm *collective.Comm) error {
		exchange, err := ep.New("onesided", comm, c.cfg.Experts, c.wire)
		if err != nil {
			return err
		}
		model, err := New(c.cfg, p, gatherSeq, comm, exchange)
		if err != nil {
			return err
		}
		model.Recompute = c.recompute
		spread(model)
		m := &member{comm, tensor.NewParallelExec(c.threads), model}
		defer m.ex.Close()
		for _, g := range model.Groups {
			g.Refresh(m.ex)
		}
		if before != nil {
			if err := before(m); err != nil {
				return err
			}
		}
		first := comm.Rank() * c.passes
		for i := range c.passes {
			b := all.part(first+i, first+i+1)
			b.More = gathered && i+1 < c.passes
			if _, err := model.Train(m.ex, b); err != nil {
				return err
			}
			if _, err := model.Eval(m.ex, b); err != nil { // between passes it changes nothing
				return err
			}
		}
		if left := (tensor.Mark{}); model.sums.rows.passes() != 0 || model.sums.rows.Mark() != left {
			t.Errorf("rank %d keeps the rows of %d passes", comm.Rank(), model.sums.rows.passes())
		}
		if kept := model.sums.rows.Peak() > 0; kept != gathered {
			t.Errorf("rank %d has kept rows: %v, want %v", comm.Rank(), kept, gathered)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, param := range model.Params() {
			if comm.Rank() == 0 || ofExpert(param.Name) {
				grads[param.Name] = slices.Clone(param.Grad.F32())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return grads
}

// passes is the number of passes whose rows are kept.
func (r *rowStore) passes() (n int) {
	for _, rows := range r.rows {
		n = max(n, len(rows))
	}
	return n
}

func ofExpert(name string) bool { return strings.Contains(name, ".experts.") }

// What several passes leave is multiplied as if it had come in one: the gradients agree with those
// of pass after pass, to rounding and, where an expert's are quantized, to that.
func TestGatheredGradients(t *testing.T) {
	// An expert has 32 rows of each sequence, so 4 passes of a rank are gathered, and 2 of two
	// ranks.
	cfg := quantizable(64, 64)
	some := with(cfg, func(c *Config) { c.TopK = 3 })
	wire := ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8}
	for name, c := range map[string]struct {
		gatherCase
		within float64
	}{
		"fp32":             {gatherCase{cfg, "fp32", RecomputeNone, ep.Options{}, 1, 1, 6}, 1e-6},
		"bf16":             {gatherCase{cfg, "bf16", RecomputeNone, ep.Options{}, 1, 1, 6}, 1e-6},
		"bf16, few rows":   {gatherCase{some, "bf16", RecomputeNone, ep.Options{}, 2, 1, 7}, 1e-6},
		"bf16, full":       {gatherCase{some, "bf16", RecomputeFull, ep.Options{}, 2, 1, 6}, 1e-6},
		"mxfp8, full":      {gatherCase{some, "mxfp8", RecomputeFull, wire, 2, 1, 6}, 0.1},
		"mxfp8-wgrad-bf16": {gatherCase{some, "mxfp8-wgrad-bf16", RecomputeNone, wire, 2, 1, 6}, 1e-6},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := c.step(t, true, nil), c.step(t, false, nil)
			for name, g := range want {
				if d := distance(got[name], g); ofExpert(name) && d > c.within || !ofExpert(name) && d > 1e-6 {
					t.Errorf("the gradient of %s is off by %.2g", name, d)
				}
			}
			again := c.gatherCase
			again.threads = 2
			for name, g := range again.step(t, true, nil) {
				if !slices.Equal(g, got[name]) {
					t.Errorf("the gradient of %s has other bits with 2 threads", name)
				}
			}
		})
	}
}

// A step whose passes are all gathered gives the gradients of one large pass, bit for bit,
// quantized or not. With fewer rows of an expert in a pass, another kernel would make its results.
func TestGatheredIsOnePass(t *testing.T) {
	const passes = 4
	for _, precision := range []string{"fp32", "bf16", "mxfp8", "mxfp8-experts", "mxfp8-wgrad-bf16", "mxint8"} {
		t.Run(precision, func(t *testing.T) {
			c := gatherCase{quantizable(64, 64), precision, RecomputeNone, ep.Options{}, 1, 1, passes}
			if n := c.cfg.WgradPasses(Unquantized(tensor.BF16), gatherSeq); n != passes {
				t.Fatalf("%d passes are gathered", n)
			}
			got := c.step(t, true, nil)
			m, err := quantizedMember(collective.NewWorld(1).Comm(0), c.cfg, precision, gatherSeq)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.model.Train(m.ex, batchOf(31, passes, gatherSeq, c.cfg.Vocab)); err != nil {
				t.Fatal(err)
			}
			for name, g := range m.gradients() {
				if d := distance(got[name], g); d != 0 {
					t.Errorf("the gradient of %s has other bits: off by %.2g", name, d)
				}
			}
		})
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
