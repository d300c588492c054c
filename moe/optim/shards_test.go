package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/tensor"
)

func TestSplit(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 4096, 5*4096 + 3} {
		for ranks := 1; ranks <= 9; ranks++ {
			counts := split(n, ranks)
			sum := 0
			for r, c := range counts {
				if c < 0 || r < ranks-1 && c%16 != 0 {
					t.Errorf("%d elements on %d ranks: %v, want multiples of 16 but the last", n, ranks, counts)
				}
				sum += c
			}
			if sum != n || len(counts) != ranks {
				t.Errorf("%d elements on %d ranks: %v of %d in all", n, ranks, counts, sum)
			}
			if most, least := slices.Max(counts), slices.Min(counts); most-least > 32 {
				t.Errorf("%d elements on %d ranks: %v is uneven", n, ranks, counts)
			}
		}
	}
}

// Over all ranks, the pieces are every element of every parameter, once; Init gives the same
// model for any number of ranks, and every rank the same working weights.
func TestInitOnAnyRanks(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		initial := func(ranks int, seed uint64) *state {
			s := newState()
			onRanks(t, ranks, dtype, adamw(), func(r *rank) error {
				if err := r.opt.Init(seed); err != nil {
					return err
				}
				return s.add(r)
			})
			return s
		}
		want := initial(1, 5)
		for _, ranks := range []int{1, 2, 3, 4, 6} {
			t.Run(fmt.Sprintf("%v/np%d", dtype, ranks), func(t *testing.T) {
				got := initial(ranks, 5)
				got.equals(t, want)
				elements := 0
				for name, owners := range got.covered {
					for i, n := range owners {
						if n != 1 {
							t.Fatalf("element %d of %s has %d owners", i, name, n)
						}
					}
					elements += len(owners)
				}
				if total := tiny(t).Count().Total; int64(elements) != total {
					t.Errorf("%d elements, the model has %d", elements, total)
				}
			})
		}
		for name, w := range want.master {
			work := want.work[name]
			for i := range w {
				if rounded := tensor.ToBFloat16(w[i]).Float32(); work[i] != w[i] && (dtype == tensor.FP32 || work[i] != rounded) {
					t.Fatalf("%v: working weight %d of %s is %g, the master weight %g", dtype, i, name, work[i], w[i])
				}
			}
		}
		if slices.Equal(initial(1, 6).master["lm_head.weight"], want.master["lm_head.weight"]) {
			t.Error("another seed gives the same weights")
		}
	}
}

// exactGradient is element i of a parameter's gradient on one rank of several. The parts and their
// sum, which is the same for any number of ranks, are small whole numbers: every order of summation
// gives the same bits.
func exactGradient(name string, i, step, rank, ranks int) float32 {
	whole := float32((i*7+len(name)*3+step*5)%13 - 6)
	if rank == 0 {
		return whole - float32(ranks*(ranks-1)/2)
	}
	return float32(rank)
}

func TestShardingChangesNothing(t *testing.T) {
	run := func(ranks int, dtype tensor.DType, cfg AdamW) (*state, []float64) {
		s := newState()
		norms := make([][]float64, ranks)
		onRanks(t, ranks, dtype, cfg, func(r *rank) error {
			if err := r.opt.Init(5); err != nil {
				return err
			}
			for step := range 4 {
				r.exactGradients(step)
				res, err := r.opt.Step(0.01 * float64(step+1))
				if err != nil {
					return err
				}
				norms[r.comm.Rank()] = append(norms[r.comm.Rank()], res.GradNorm)
			}
			return s.add(r)
		})
		for r := range norms {
			if !slices.Equal(norms[r], norms[0]) {
				t.Errorf("gradient norms of rank %d are %v, of rank 0 %v", r, norms[r], norms[0])
			}
		}
		return s, norms[0]
	}
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		for _, clip := range []float64{0, 1} {
			cfg := adamw()
			cfg.ClipNorm = clip
			want, wantNorms := run(1, dtype, cfg)
			for _, ranks := range []int{2, 3, 4} {
				t.Run(fmt.Sprintf("%v/clip%g/np%d", dtype, clip, ranks), func(t *testing.T) {
					got, norms := run(ranks, dtype, cfg)
					got.equals(t, want)
					if !slices.Equal(norms, wantNorms) {
						t.Errorf("gradient norms %v, want %v", norms, wantNorms)
					}
				})
			}
		}
	}
}

// exactGradients sets this rank's gradients of a step; an expert's is on its rank alone.
func (r *rank) exactGradients(step int) {
	for _, g := range r.model.Groups {
		for _, p := range g.Params {
			for i := range p.Grad.F32() {
				if g.Local {
					p.Grad.F32()[i] = exactGradient(p.Name, i, step, 0, 1)
				} else {
					p.Grad.F32()[i] = exactGradient(p.Name, i, step, r.comm.Rank(), r.comm.Size())
				}
			}
		}
	}
}

// The norm is that of all parameters, each once: replicated gradients summed over the ranks, local
// ones of every rank.
func TestGradNorm(t *testing.T) {
	const ranks = 3
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		groups := []*moe.Group{group("all", false, tensor.FP32, 0, 200), group("own", true, tensor.FP32, 0, 10)}
		o := New(tensor.NewExec(), groups, c, adamw())
		for _, g := range groups {
			for i := range g.Grad.F32() {
				g.Grad.F32()[i] = float32(c.Rank() + 1)
			}
		}
		res, err := o.Step(0.1)
		if want := math.Sqrt(200*6*6 + 10*(1+4+9)); math.Abs(res.GradNorm-want) > 1e-9 {
			t.Errorf("rank %d: norm %.12g, want %.12g", c.Rank(), res.GradNorm, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The norm is the same bits for every number of ranks that share the parameters evenly.
func TestGradNormOnAnyRanks(t *testing.T) {
	const experts = 8
	norm := func(ranks int) float64 {
		norms := make([]float64, ranks)
		err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
			lengths := make([]int, experts/ranks)
			for i := range lengths {
				lengths[i] = 1000
			}
			groups := []*moe.Group{group("all", false, tensor.FP32, 4096-1500, 1000, 500), group("own", true, tensor.FP32, 96, lengths...)}
			for i := range groups[0].Grad.F32()[:1500] {
				if c.Rank() == i%ranks {
					groups[0].Grad.F32()[i] = float32(math.Sin(float64(i)))
				}
			}
			for i := range len(lengths) * 1000 {
				groups[1].Grad.F32()[i] = float32(math.Cos(float64(c.Rank()*len(lengths)*1000+i))) / 3
			}
			res, err := New(tensor.NewExec(), groups, c, adamw()).Step(0.1)
			norms[c.Rank()] = res.GradNorm
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Min(norms) != slices.Max(norms) {
			t.Errorf("the norms of %d ranks are %v", ranks, norms)
		}
		return norms[0]
	}
	want := norm(1)
	for _, ranks := range []int{2, 4, 8} {
		if got := norm(ranks); got != want {
			t.Errorf("np %d: norm %x, want %x", ranks, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	var replicated, local int64
	for _, ranks := range []int{1, 2, 4} {
		sizes := make([]int64, ranks)
		onRanks(t, ranks, tensor.BF16, adamw(), func(r *rank) error {
			sizes[r.comm.Rank()] = 4 * int64(StateLen(r.model.Groups, r.comm))
			if ranks > 1 {
				return nil
			}
			for _, g := range r.model.Groups {
				if g.Local {
					local += int64(g.Len())
				} else {
					replicated += int64(g.Len())
				}
			}
			return nil
		})
		// Every expert group is padded on its own, so that ranks may hold a little more than their share.
		for _, n := range sizes {
			if low := 12 * (replicated + local) / int64(ranks); n < low-12*4096 || n > low+12*4096 {
				t.Errorf("np %d: a rank holds %d bytes of state, its share is %d", ranks, n, low)
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

// With two copies of the state, an update makes the same new state, and leaves the one before as it was; so does a skipped step.
func TestTwoCopies(t *testing.T) {
	g, other := group("dense", false, tensor.BF16, 12, 60, 40), group("dense", false, tensor.BF16, 12, 60, 40)
	c := collective.NewWorld(1).Comm(0)
	one := New(tensor.NewExec(), []*moe.Group{g}, c, adamw())
	memory := []tensor.Tensor{tensor.New(tensor.FP32, StateLen([]*moe.Group{other}, c)), tensor.New(tensor.FP32, StateLen([]*moe.Group{other}, c))}
	two := New(tensor.NewExec(), []*moe.Group{other}, c, adamw(), memory...)
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
		before := slices.Clone(memory[step%2].F32())
		for _, o := range []*Optimizer{one, two} {
			if r, err := o.Step(1e-3); err != nil || r.Skipped != (step == 2) {
				t.Fatal(r, err)
			}
		}
		if !slices.Equal(memory[step%2].F32(), before) {
			t.Errorf("step %d changed the state that it started from", step)
		}
		for i, a := range slices.Collect(one.Pieces) {
			if b := slices.Collect(two.Pieces)[i]; !slices.Equal(a.Master, b.Master) || !slices.Equal(a.ExpAvg, b.ExpAvg) || !slices.Equal(a.ExpAvgSq, b.ExpAvgSq) {
				t.Errorf("step %d: the states differ", step)
			}
		}
		if !slices.Equal(g.Work.BF16(), other.Work.BF16()) {
			t.Errorf("step %d: the weights differ", step)
		}
	}
	// Whoever goes on with a state by its number makes the same step again.
	want := slices.Clone(memory[1].F32())
	two.Use(4)
	two.SetSteps(two.Steps() - 1)
	for i := range other.Grad.F32() {
		other.Grad.F32()[i] = float32(i%7) - 3
	}
	if _, err := two.Step(1e-3); err != nil || !slices.Equal(memory[1].F32(), want) {
		t.Error("a step that is made again differs", err)
	}
}

// An update in place quantises experts on its way, on any number of threads, with whole and with part blocks: all weights and codes are
// those that an update into other memory leaves, which quantises afterwards.
func TestUpdateQuantisesExperts(t *testing.T) {
	precision, err := moe.PrecisionByName("mxfp8-experts")
	if err != nil {
		t.Fatal(err)
	}
	updated := func(inter, threads, copies int, watched bool) (all [][]byte) {
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
		var memory []tensor.Tensor
		for range copies {
			memory = append(memory, tensor.New(tensor.FP32, StateLen(m.Groups, c)))
		}
		o := New(ex, m.Groups, c, adamw(), memory...)
		if err := o.Init(1); err != nil {
			t.Fatal(err)
		}
		for _, g := range m.Groups {
			for i := range g.Grad.F32() {
				g.Grad.F32()[i] = float32(i%7) - 3
			}
		}
		if watched {
			m.ObserveQuantised(func(q moe.Quantised) {
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
	for _, inter := range []int{14, 64} {
		for _, watched := range []bool{false, true} {
			want := updated(inter, 1, 2, watched)
			for threads := 1; threads <= 3; threads++ {
				if !slices.EqualFunc(updated(inter, threads, 1, watched), want, slices.Equal) {
					t.Errorf("experts of width %d on %d threads, watched: %v: weights or codes differ", inter, threads, watched)
				}
			}
		}
	}
}
