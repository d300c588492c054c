package optim

// The state of shards: its bytes, its two copies, and what an update makes of it.

import (
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/exact"
)

// The bytes of a rank's state are its share of the weights times the rule's bytes per weight.
func TestStateBytes(t *testing.T) {
	for name, c := range map[string]struct {
		rule      Rule
		perWeight int64
		uneven    int64 // weights that a rank may own more than its share
	}{
		"adamw": {adamw(), 12, 3 * (4096 + normPiece)}, "bf16 moments": {bf16Moments(), 8, 3 * (4096 + normPiece)}, "whole matrices": {normalizedSGD{}, 6, 4096 + 2*30*20},
	} {
		if got := BytesPerWeight(c.rule); int64(got) != c.perWeight {
			t.Errorf("%s: %d bytes per weight, want %d", name, got, c.perWeight)
		}
		for _, ranks := range []int{1, 2, 4} {
			sizes, owned := make([]int64, ranks), make([]int64, ranks)
			var total int64
			onRanks(t, ranks, tensor.BF16, c.rule, func(r *rank) error {
				sizes[r.comm.Rank()] = int64(StateBytes(c.rule, r.model.Groups))
				for _, v := range r.opt.State {
					owned[r.comm.Rank()] += int64(len(v.Bytes()))
				}
				if r.comm.Rank() == 0 {
					for _, g := range r.model.Groups {
						if total += int64(g.Len()); g.Experts {
							total += int64(g.Len()) * int64(ranks-1)
						}
					}
				}
				return nil
			})
			share := c.perWeight * total / int64(ranks)
			for r, n := range sizes {
				if n > share+c.perWeight*c.uneven {
					t.Errorf("%s, np %d: rank %d holds %d bytes of state, its share is %d", name, ranks, r, n, share)
				}
				if padding := n - owned[r]; padding < 0 || padding > 3*3*tensor.Alignment {
					t.Errorf("%s, np %d: rank %d has %d bytes for vectors of %d", name, ranks, r, n, owned[r])
				}
			}
		}
	}
}

// Pieces stops when its caller has seen enough.
func TestPiecesStop(t *testing.T) {
	onRanks(t, 1, tensor.FP32, adamw(), func(r *rank) error {
		seen := 0
		for range r.opt.Pieces {
			if seen++; seen == 3 {
				break
			}
		}
		if seen != 3 {
			t.Errorf("%d pieces were seen, want 3", seen)
		}
		return nil
	})
}

// newMemory returns memory for the state of a rule.
func newMemory(rule Rule, groups []*moe.Group) []byte {
	return tensor.New(tensor.UINT8, StateBytes(rule, groups)).Bytes()
}

// With two copies of the state, an update writes the same new state to one copy and leaves the old
// state in the other. So does a skipped step.
func TestTwoCopies(t *testing.T) {
	for name, rule := range testRules {
		t.Run(name, func(t *testing.T) { testTwoCopies(t, rule) })
	}
}

func testTwoCopies(t *testing.T, rule Rule) {
	c := collective.NewWorld(1).Comm(0)
	g, other := group("dense", c, tensor.BF16, 12, 60, 40), group("dense", c, tensor.BF16, 12, 60, 40)
	one := New(tensor.NewExec(), []*moe.Group{g}, c, rule)
	memory := [][]byte{newMemory(rule, []*moe.Group{other}), newMemory(rule, []*moe.Group{other})}
	two := New(tensor.NewExec(), []*moe.Group{other}, c, rule, memory...)
	for _, o := range []*Optimizer{one, two} {
		if err := o.Init(1); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 5 {
		for i := range g.Grad.F32() {
			x := float32(i%7) - 3
			if step == 2 {
				x = float32(math.NaN())
			}
			g.Grad.F32()[i], other.Grad.F32()[i] = x, x
		}
		before := slices.Clone(memory[step%2])
		for _, o := range []*Optimizer{one, two} {
			if r, err := o.Step(1e-3); err != nil || r.Skipped != (step == 2) {
				t.Fatal(r, err)
			}
		}
		if !slices.Equal(memory[step%2], before) {
			t.Errorf("step %d changed the state that it started from", step)
		}
		for i, a := range slices.Collect(one.Pieces) {
			for j, v := range slices.Collect(two.Pieces)[i].State {
				if !slices.Equal(a.State[j].Data.Bytes(), v.Data.Bytes()) {
					t.Errorf("step %d: the states differ in %s", step, v.Name)
				}
			}
		}
		if !slices.Equal(g.Work.BF16(), other.Work.BF16()) {
			t.Errorf("step %d: the weights differ", step)
		}
	}
	// Whoever goes on with a state by its number makes the same step again.
	want := slices.Clone(memory[1])
	two.Use(4)
	two.SetSteps(two.Steps() - 1)
	for i := range other.Grad.F32() {
		other.Grad.F32()[i] = float32(i%7) - 3
	}
	if _, err := two.Step(1e-3); err != nil || !slices.Equal(memory[1], want) {
		t.Error("a step that is made again differs", err)
	}
}

// An update in place quantizes experts on its way, on any number of threads, with whole and with
// part blocks: all weights and codes are those that an update into other memory leaves, which
// quantizes afterwards.
func TestUpdateQuantizesExperts(t *testing.T) {
	precision, err := moe.PrecisionByName("mxfp8-experts")
	if err != nil {
		t.Fatal(err)
	}
	updated := func(rule Rule, inter, threads, copies int, watched bool) (all [][]byte) {
		cfg := tiny(t)
		cfg.ExpertInter = inter
		c := collective.NewWorld(1).Comm(0)
		exchange, err := ep.NewStandard(c, cfg.Experts)
		if err != nil {
			t.Fatal(err)
		}
		m, err := moe.New(cfg, precision, 8, c, exchange)
		if err != nil {
			t.Fatal(err)
		}
		ex := tensor.NewParallelExec(threads)
		defer ex.Close()
		var memory [][]byte
		for range copies {
			memory = append(memory, newMemory(rule, m.Groups))
		}
		o := New(ex, m.Groups, c, rule, memory...)
		if err := o.Init(1); err != nil {
			t.Fatal(err)
		}
		for _, g := range m.Groups {
			for i := range g.Grad.F32() {
				g.Grad.F32()[i] = float32(i%7) - 3
			}
		}
		if watched {
			m.ObserveQuantized(func(q moe.Quantized) {
				shown := tensor.New(tensor.FP32, q.X.Rows, q.X.Cols)
				tensor.Convert(nil, shown.Mat(), q.X)
				all = append(all, shown.Bytes())
			})
		}
		if _, err := o.Step(0.5); err != nil {
			t.Fatal(err)
		}
		for _, g := range m.Groups {
			for w := range g.Weights {
				all = append(all, w.Bytes())
			}
		}
		return all
	}
	for name, rule := range testRules {
		for _, inter := range []int{14, 64} {
			for _, watched := range []bool{false, true} {
				want := updated(rule, inter, 1, 2, watched)
				for threads := 1; threads <= 3; threads++ {
					if !slices.EqualFunc(updated(rule, inter, threads, 1, watched), want, slices.Equal) {
						t.Errorf("%s, experts of width %d on %d threads, watched: %v: weights or codes differ", name, inter, threads, watched)
					}
				}
			}
		}
	}
}

// The squares have the same sum if parameters are in one group or in several, as in the stages of a
// pipeline. Small ones next to a large one are lost in the sum of their piece.
func TestSquaresOfParametersInAnyGroups(t *testing.T) {
	var sums []exact.Sum
	for _, groups := range [][]*moe.Group{
		{group("all", nil, tensor.FP32, 4, 100, 600, 700)},
		{group("first", nil, tensor.FP32, 4, 100), group("rest", nil, tensor.FP32, 4, 600, 700)},
	} {
		for _, g := range groups {
			g.Experts = false
			for _, p := range g.Params {
				for i := range p.Grad.F32() {
					if p.Len() > 100 {
						p.Grad.F32()[i] = 1
					}
				}
				if p.Len() == 600 {
					p.Grad.F32()[0] = 1 << 30
				}
			}
		}
		o := New(tensor.NewExec(), groups, collective.NewWorld(1).Comm(0), adamw())
		var sum exact.Sum
		for _, s := range o.shards {
			o.addSquares(&sum, s)
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Errorf("%v and %v", sums[0], sums[1])
	}
}
