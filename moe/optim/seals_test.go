package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/tensor"
)

// sealable returns an optimizer of loose parameters whose state takes several seals, some of them
// incomplete.
func sealable(t testing.TB, rule Rule, copies, threads int) (*Optimizer, []*moe.Group) {
	t.Helper()
	c := collective.NewWorld(1).Comm(0)
	groups := []*moe.Group{
		group("norm", c, tensor.FP32, 4, 100),
		group("dense", c, tensor.BF16, 12, 5000, 3*sealedRun+700, 1),
		group("expert", nil, tensor.BF16, 0, 2*sealLen),
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
	return o, groups
}

// fillGradients sets gradients that depend on the number of the step. Some are not finite.
func fillGradients(groups []*moe.Group, n int) {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	for _, g := range groups {
		for i := range g.Grad.F32() {
			g.Grad.F32()[i] = rng.Float32() - 0.5
		}
	}
	if n%4 == 2 {
		groups[1].Grad.F32()[0] = float32(math.Inf(1))
	}
}

// step makes an update, or skips it.
func step(t testing.TB, o *Optimizer, groups []*moe.Group, n int) {
	t.Helper()
	fillGradients(groups, n)
	if _, err := o.Step(1e-2); err != nil {
		t.Fatal(err)
	}
}

// stateBytes returns all bytes of the newest state and of the working weights.
func stateBytes(o *Optimizer, groups []*moe.Group) (all []byte) {
	for _, x := range o.State {
		all = append(all, x.Bytes()...)
	}
	for _, g := range groups {
		all = append(all, g.Work.Bytes()...)
	}
	return all
}

// Seals change no bit of an update, and find nothing where nothing is wrong.
func TestSealedUpdate(t *testing.T) {
	for name, rule := range testRules {
		for copies := 1; copies <= 2; copies++ {
			for threads := 1; threads <= 2; threads++ {
				plain, a := sealable(t, rule, copies, 1)
				sealed, b := sealable(t, rule, copies, threads)
				sealed.Seal()
				for n := range 6 {
					step(t, plain, a, n)
					step(t, sealed, b, n)
					if !slices.Equal(stateBytes(plain, a), stateBytes(sealed, b)) {
						t.Errorf("%s, %d copies, %d threads: step %d differs", name, copies, threads, n)
					}
				}
				sealed.Verify()
				if repaired, lost := sealed.Changes(); len(repaired)+len(lost) != 0 {
					t.Errorf("%s, %d copies: changes %q and %q of undisturbed memory", name, copies, repaired, lost)
				}
			}
		}
	}
}

// Seals of weights that are quantized while they are updated work alike.
func TestSealedQuantized(t *testing.T) {
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Layers, cfg.Experts, cfg.TopK = 2, 4, 2
	recipe, err := moe.PrecisionByName("mxfp8")
	if err != nil {
		t.Fatal(err)
	}
	var all [2][]byte
	for i := range all {
		err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
			exchange, err := ep.NewStandard(c, cfg.Experts)
			if err != nil {
				return err
			}
			m, err := moe.New(cfg, recipe, 32, c, exchange)
			if err != nil {
				return err
			}
			o := New(tensor.NewExec(), m.Groups, c, adamw())
			if err := o.Init(1); err != nil {
				return err
			}
			if i == 1 {
				o.Seal()
			}
			for _, s := range o.shards {
				if local := s.group.Experts; o.updatesWork(s) != local {
					t.Errorf("the %s group is updated together with its codes: %v", s.group.Name, !local)
				}
			}
			for n := range 3 {
				step(t, o, m.Groups, n)
			}
			all[i] = stateBytes(o, nil)
			for _, g := range m.Groups {
				for w := range g.Weights {
					all[i] = append(all[i], w.Bytes()...)
				}
			}
			o.Verify()
			if repaired, lost := o.Changes(); len(repaired)+len(lost) != 0 {
				t.Errorf("changes %q and %q of undisturbed memory", repaired, lost)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(all[0], all[1]) {
		t.Error("the weights differ")
	}
}

// vectorsOf returns the vectors of the newest state.
func vectorsOf(o *Optimizer) (all []tensor.Tensor) {
	for _, x := range o.State {
		all = append(all, x)
	}
	return all
}

// namesOf returns the names of vectors with the given numbers.
func namesOf(o *Optimizer, numbers ...int) (names []string) {
	var all []string
	for name := range o.State {
		all = append(all, name)
	}
	for _, i := range numbers {
		names = append(names, all[i])
	}
	return names
}

// A changed byte anywhere in the state is restored by the update that reads it, or by Verify.
func TestSealsRestore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, rule := range testRules {
		for copies := 1; copies <= 2; copies++ {
			want, a := sealable(t, rule, copies, 1)
			o, b := sealable(t, rule, copies, 2)
			o.Seal()
			for n := range 40 {
				list := vectorsOf(o)
				v := rng.IntN(len(list))
				x, change := list[v].Bytes(), byte(1)<<rng.IntN(8)
				if n%8 == 0 {
					change = byte(1 + rng.IntN(255))
				}
				x[rng.IntN(len(x))] ^= change
				if n%2 == 0 {
					o.Verify()
				} else { // no step with an odd number is skipped
					step(t, o, b, n)
					step(t, want, a, n)
				}
				if repaired, lost := o.Changes(); !slices.Equal(repaired, namesOf(o, v)) || lost != nil {
					t.Errorf("%s, %d copies: vector %d was changed, repaired %q, lost %q", name, copies, v, repaired, lost)
				}
				if !slices.Equal(stateBytes(o, b), stateBytes(want, a)) {
					t.Fatalf("%s, %d copies: the state differs after change %d", name, copies, n)
				}
			}
		}
	}
}

// A byte of the summed gradients that changes before the update reads it is restored as well.
func TestSealedGradients(t *testing.T) {
	for name, rule := range testRules {
		want, a := sealable(t, rule, 1, 1)
		o, b := sealable(t, rule, 1, 2)
		o.Seal()
		for n := range 2 {
			step(t, want, a, n)
			fillGradients(b, n)
			norm, err := o.Reduce()
			if err != nil {
				t.Fatal(err)
			}
			x := b[n].Grad.Bytes()
			x[len(x)/3] ^= 16
			if err := o.Apply(1e-2, norm); err != nil {
				t.Fatal(err)
			}
			repaired, lost := o.Changes()
			if lost != nil || !slices.Equal(repaired, []string{"summed gradients of the " + b[n].Name + " group"}) {
				t.Errorf("%s: repaired %q, lost %q", name, repaired, lost)
			}
			if !slices.Equal(stateBytes(o, b), stateBytes(want, a)) {
				t.Fatalf("%s: the state differs after step %d", name, n)
			}
		}
	}
}

// A skipped step carries a change over to the other copy of the state, where it is found.
func TestSealsCarry(t *testing.T) {
	o, groups := sealable(t, adamw(), 2, 1)
	o.Seal()
	vectorsOf(o)[4].Bytes()[5000] ^= 1
	step(t, o, groups, 2)
	o.Verify()
	if repaired, lost := o.Changes(); !slices.Equal(repaired, namesOf(o, 4)) || lost != nil {
		t.Errorf("repaired %q, lost %q", repaired, lost)
	}
}

// What no seal can restore is reported and stays as it is. Other vectors are not touched.
func TestSealsLost(t *testing.T) {
	o, _ := sealable(t, adamw(), 1, 1)
	o.Seal()
	x := vectorsOf(o)[5].Bytes()
	x[100] ^= 1
	x[200] ^= 1
	vectorsOf(o)[2].Bytes()[0] ^= 128
	before := slices.Clone(x)
	for _, want := range [][]string{namesOf(o, 2), nil} {
		o.Verify()
		if repaired, lost := o.Changes(); !slices.Equal(repaired, want) || !slices.Equal(lost, namesOf(o, 5)) {
			t.Errorf("repaired %q, lost %q", repaired, lost)
		}
	}
	if !slices.Equal(x, before) {
		t.Error("the vector was changed")
	}
}

// A changed seal is told from changed state.
func TestSealChanged(t *testing.T) {
	o, groups := sealable(t, adamw(), 1, 1)
	o.Seal()
	before, digests := stateBytes(o, groups), o.Digests(nil)
	o.shards[1].seals[0][2][3] ^= 1 << 17
	if slices.Equal(o.Digests(nil), digests) {
		t.Error("the digests do not depend on the seal")
	}
	o.Verify()
	if repaired, lost := o.Changes(); !slices.Equal(repaired, namesOf(o, 5)) || lost != nil {
		t.Errorf("repaired %q, lost %q", repaired, lost)
	}
	if !slices.Equal(stateBytes(o, groups), before) || !slices.Equal(o.Digests(nil), digests) {
		t.Error("the seal was not restored, or the state was changed")
	}
}

// Digests tell states apart, and depend on nothing but the state.
func TestDigests(t *testing.T) {
	a, _ := sealable(t, adamw(), 1, 1)
	if got := a.Digests(nil); got != nil {
		t.Errorf("digests %x of a state without seals", got)
	}
	a.Seal()
	b, groups := sealable(t, adamw(), 2, 2)
	b.Seal()
	if !slices.Equal(a.Digests(nil), b.Digests(nil)) {
		t.Error("the digests of equal states differ")
	}
	step(t, b, groups, 0)
	if got, all := a.Differing(b.Digests(nil)), namesOf(a, 0, 1, 2, 3, 4, 5, 6, 7, 8); !slices.Equal(got, all) {
		t.Errorf("%q have other digests than before the update, want all", got)
	}
}

// Every range that UpdateWork passes begins where a seal does, or the optimizer must not use it.
func TestUpdatesInMultiples(t *testing.T) {
	recipe, err := moe.PrecisionByName("mxfp8")
	if err != nil {
		t.Fatal(err)
	}
	for _, inter := range []int{32, 48, 64, 33} {
		cfg := tiny(t)
		cfg.Dim, cfg.ExpertInter = 64, inter
		err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
			exchange, err := ep.NewStandard(c, cfg.Experts)
			if err != nil {
				return err
			}
			m, err := moe.New(cfg, recipe, 32, c, exchange)
			if err != nil {
				return err
			}
			experts := m.Groups[len(m.Groups)-1]
			for shift := range 14 {
				n, multiples := 1<<shift, true
				experts.UpdateWork(tensor.NewExec(), func(_ *tensor.Exec, lo, _ int, _ tensor.Tensor) { multiples = multiples && lo%n == 0 })
				if got := experts.UpdatesInMultiples(n); got && !multiples {
					t.Errorf("experts of width %d: ranges begin at multiples of %d: %v, the model says %v", inter, n, multiples, got)
				}
			}
			if got, want := experts.UpdatesInMultiples(sealLen), inter%32 == 0; got != want {
				t.Errorf("experts of width %d are updated in multiples of %d: %v, want %v", inter, sealLen, got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The cost of checks, per weight.
func BenchmarkSealedUpdate(b *testing.B) {
	for copies := 1; copies <= 2; copies++ {
		for _, sealed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d-copies/sealed-%v", copies, sealed), func(b *testing.B) {
				c := collective.NewWorld(1).Comm(0)
				g := []*moe.Group{group("dense", c, tensor.BF16, 0, 16<<20)}
				var memory [][]byte
				for range copies {
					memory = append(memory, newMemory(adamw(), g))
				}
				ex := tensor.NewParallelExec(2)
				defer ex.Close()
				o := New(ex, g, c, adamw(), memory...)
				if sealed {
					o.Seal()
				}
				update := func() { o.update(o.next(), 1e-3, 1) }
				update()
				for b.Loop() {
					update()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(g[0].Len()), "ns/weight")
			})
		}
	}
}
