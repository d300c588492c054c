package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// summed returns an optimizer of loose parameters, with the checksums of its initial state.
func summed(t testing.TB, rule Rule, copies, threads int) (*Optimizer, []*moe.Group) {
	t.Helper()
	c := collective.NewWorld(1).Comm(0)
	groups := []*moe.Group{
		group("norm", c, tensor.FP32, 4, 100),
		group("dense", c, tensor.BF16, 12, 5000, 30_700, 1),
		group("expert", nil, tensor.BF16, 0, 2048),
	}
	var memory [][]byte
	for range copies {
		memory = append(memory, newMemory(rule, groups))
	}
	ex := tensor.NewParallelExec(threads)
	t.Cleanup(ex.Close)
	o := New(ex, groups, c, rule, memory...)
	if err := o.Init(1); err != nil {
		t.Fatal(err)
	}
	for s := range o.Summed {
		*s.Sum = words(s.Data)
	}
	return o, groups
}

func words(x tensor.Tensor) uint32 {
	var sum tensor.Sum
	tensor.Words(tensor.NewExec(), &sum, x)
	return sum.Load()
}

// step makes an update with gradients that depend on its number. Those of some steps are not
// finite, which skips it.
func step(t testing.TB, o *Optimizer, groups []*moe.Group, n int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	for _, g := range groups {
		for i := range g.ParamLen() {
			g.Grad.F32()[i] = rng.Float32() - 0.5
		}
	}
	if n%4 == 2 {
		groups[1].Grad.F32()[0] = float32(math.Inf(1))
	}
	o.step(t, 1e-2)
}

// Checksums that an update takes are those of the memory that it leaves, and it finds nothing in
// undisturbed memory.
func TestSums(t *testing.T) {
	for name, rule := range testRules {
		for copies := 1; copies <= 2; copies++ {
			for threads := 1; threads <= 2; threads++ {
				o, groups := summed(t, rule, copies, threads)
				for n := range 6 {
					step(t, o, groups, n)
					if changed := o.Changed(); len(changed) > 0 {
						t.Fatalf("%s, %d copies, step %d: changed %q", name, copies, n, changed)
					}
					for _, all := range []func(func(Summed) bool){o.Summed, o.Published} {
						for s := range all {
							if got := words(s.Data); got != *s.Sum {
								t.Errorf("%s, %d copies, step %d: the checksum of the %s is %#x, memory has %#x", name, copies, n, s.Name, *s.Sum, got)
							}
						}
					}
				}
			}
		}
	}
}

// A bit that flips in any vector, or in gradients whose checksum is known, is named by the update
// that reads it, and by no later one.
func TestChangedState(t *testing.T) {
	for name, rule := range testRules {
		for copies := 1; copies <= 2; copies++ {
			o, groups := summed(t, rule, copies, 2)
			step(t, o, groups, 0)
			n := 0
			for s := range o.Summed {
				vector := s.Name
				number := 0
				for s := range o.Summed {
					if x := s.Data; s.Name == vector && x.Len() > 0 {
						x.Bytes()[(100+number)%len(x.Bytes())] ^= 1 << (number % 8)
					}
					number++
				}
				step(t, o, groups, 4*n)
				if changed := o.Changed(); !slices.Equal(changed, []string{vector}) {
					t.Errorf("%s, %d copies: changed %q, want %s", name, copies, changed, vector)
				}
				n++
			}
			for _, g := range groups {
				for i := range g.ParamLen() {
					g.Grad.F32()[i] = 1
				}
			}
			norm, err := o.Reduce()
			if err != nil {
				t.Fatal(err)
			}
			var sums []uint32
			for _, grad := range o.Gradients {
				sums = append(sums, words(grad))
			}
			o.ExpectGradients(sums)
			groups[1].Grad.Bytes()[30_001] ^= 4
			if err := o.Apply(1e-2, norm); err != nil {
				t.Fatal(err)
			}
			if changed := o.Changed(); !slices.Equal(changed, []string{"summed gradients of the dense group"}) {
				t.Errorf("%s: a gradient: changed %q", name, changed)
			}
		}
	}
}
