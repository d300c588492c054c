package optim

// The state of shards: its two copies, and what an update makes of it.

import (
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/tensor"
)

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
			o.step(t, 1e-3)
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
	if two.step(t, 1e-3); !slices.Equal(memory[1], want) {
		t.Error("a step that is made again differs")
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
	updated := func(rule Rule, inter, threads, copies int) (all [][]byte) {
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
		o.step(t, 0.5)
		for _, g := range m.Groups {
			for w := range g.Weights {
				all = append(all, w.Bytes())
			}
		}
		return all
	}
	for name, rule := range testRules {
		for _, inter := range []int{14, 64} {
			want := updated(rule, inter, 1, 2)
			for threads := 1; threads <= 3; threads++ {
				if !slices.EqualFunc(updated(rule, inter, threads, 1), want, slices.Equal) {
					t.Errorf("%s, experts of width %d on %d threads: weights or codes differ", name, inter, threads)
				}
			}
		}
	}
}
