package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/tensor"
)

// Slices end at multiples of a piece of the norm in a parameter, and are nearly even.
func TestSplitPieces(t *testing.T) {
	for _, lengths := range [][]int{{}, {7}, {256, 256}, {100, 700, 4096, 30}, {5, 5, 5}, {1000, 10, 10, 10, 5000}, {64, 3 * 4096}} {
		g := group("w", collective.NewWorld(1).Comm(0), tensor.FP32, 4096, lengths...)
		ends := map[int]bool{}
		for i, n := range lengths {
			for at := 0; at < n; at += normPiece {
				ends[sum(lengths[:i])+at] = true
			}
		}
		for ranks := 1; ranks <= 9; ranks++ {
			counts := wholeSegment(g).splitPieces(ranks)
			if len(counts) != ranks || sum(counts) != g.Len() || slices.Min(counts) < 0 {
				t.Fatalf("%v on %d ranks: %v, want %d elements", lengths, ranks, counts, g.Len())
			}
			for r := 1; r < ranks; r++ {
				at := sum(counts[:r])
				if !ends[at] && len(lengths) > 0 {
					t.Errorf("%v on %d ranks: %v cuts a piece", lengths, ranks, counts)
				}
				if even := g.ParamLen() * r / ranks; len(lengths) > 0 && (at > even || at <= even-normPiece) {
					t.Errorf("%v on %d ranks: %v is uneven", lengths, ranks, counts)
				}
			}
		}
	}
}

// wholeSegment returns all of a group as one segment.
func wholeSegment(g *moe.Group) segment { return segment{group: g, params: g.Params, end: g.Len()} }

// Slices of whole parameters end where parameters do, and no other choice of the ends makes the
// largest slice smaller.
func TestSplitParams(t *testing.T) {
	for _, lengths := range [][]int{{}, {7}, {5, 5, 5, 5}, {1, 2, 3, 4, 5}, {9, 1, 1, 1}, {1, 1, 1, 9}, {3, 100, 3, 3}, {4, 4, 4, 4, 4, 4, 4}} {
		g := group("w", collective.NewWorld(1).Comm(0), tensor.FP32, 32, lengths...)
		ends := map[int]bool{0: true}
		for i := range lengths {
			ends[sum(lengths[:i+1])] = true
		}
		for ranks := 1; ranks <= 6; ranks++ {
			counts := wholeSegment(g).splitParams(ranks)
			if len(counts) != ranks || sum(counts) != g.Len() {
				t.Fatalf("%v on %d ranks: %v, want %d elements", lengths, ranks, counts, g.Len())
			}
			counts[ranks-1] -= g.Len() - g.ParamLen()
			for r := range counts {
				if !ends[sum(counts[:r+1])] {
					t.Errorf("%v on %d ranks: %v cuts a parameter", lengths, ranks, counts)
				}
			}
			if got, want := slices.Max(counts), smallestLargest(lengths, ranks); got != want {
				t.Errorf("%v on %d ranks: %v, the largest slice could have %d", lengths, ranks, counts, want)
			}
		}
	}
}

func sum(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// smallestLargest tries all ways to give neighbouring lengths to ranks.
func smallestLargest(lengths []int, ranks int) int {
	if ranks == 1 {
		return sum(lengths)
	}
	best := math.MaxInt
	for i := range len(lengths) + 1 {
		best = min(best, max(sum(lengths[:i]), smallestLargest(lengths[i:], ranks-1)))
	}
	return best
}

// A rule that wants whole matrices gets shards of whole parameters, an expert's each counted by
// itself; others get slices that are nearly equal.
func TestShardsOf(t *testing.T) {
	world := collective.NewWorld(2)
	for _, c := range []struct {
		rule   Rule
		bounds [][2]int // of the slices of "all"
	}{{adamw(), [][2]int{{0, 612}, {612, 1280}}}, {normalizedSGD{}, [][2]int{{0, 100}, {100, 1280}}}} {
		for rank, want := range c.bounds {
			groups := []*moe.Group{group("all", world.Comm(rank), tensor.FP32, 6, 100, 1174), group("own", nil, tensor.FP32, 4, 30, 30)}
			shards := shardsOf(groups, c.rule)
			if all := shards[0]; [2]int{all.lo, all.hi} != want || !slices.Equal(all.division.Counts, []int{c.bounds[0][1], 1280 - c.bounds[0][1]}) {
				t.Errorf("%T, rank %d: [%d, %d) of %v, want %v", c.rule, rank, all.lo, all.hi, all.division.Counts, want)
			}
			if own := shards[1]; own.lo != 0 || own.hi != 64 || own.division.Counts != nil {
				t.Errorf("%T, rank %d: [%d, %d) of its own 64", c.rule, rank, own.lo, own.hi)
			}
			parts := 0
			for p := range shards[1].parts {
				if parts++; p.hi-p.lo != 30 || p.offset != 0 {
					t.Errorf("%T, rank %d: an expert's parameter is %+v", c.rule, rank, p)
				}
			}
			if parts != 2 {
				t.Errorf("%T, rank %d: %d parameters of experts, want 2", c.rule, rank, parts)
			}
		}
	}
}

// Over all ranks, the pieces are every element of every parameter, once; Init gives the same
// model for any number of ranks, and every rank the same working weights.
func TestInitOnAnyRanks(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		initial := func(ranks int, seed uint64) *wholeState {
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
		for name, w := range want.master() {
			work := want.work[name]
			for i := range w {
				if rounded := tensor.ToBFloat16(w[i]).Float32(); work[i] != w[i] && (dtype == tensor.FP32 || work[i] != rounded) {
					t.Fatalf("%v: working weight %d of %s is %g, the master weight %g", dtype, i, name, work[i], w[i])
				}
			}
		}
		if slices.Equal(initial(1, 6).master()["lm_head.weight"], want.master()["lm_head.weight"]) {
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
	run := func(ranks int, dtype tensor.DType, rule Rule, clip float64) (*wholeState, []float64) {
		s := newState()
		norms := make([][]float64, ranks)
		onRanks(t, ranks, dtype, rule, func(r *rank) error {
			r.opt.ClipNorm = clip
			if err := r.opt.Init(5); err != nil {
				return err
			}
			for step := range 4 {
				if err := r.exactGradients(step); err != nil {
					return err
				}
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
	for name, rule := range testRules {
		for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
			for _, clip := range []float64{0, 1} {
				want, wantNorms := run(1, dtype, rule, clip)
				for _, ranks := range []int{2, 3, 4} {
					t.Run(fmt.Sprintf("%s/%v/clip%g/np%d", name, dtype, clip, ranks), func(t *testing.T) {
						got, norms := run(ranks, dtype, rule, clip)
						got.equals(t, want)
						if !slices.Equal(norms, wantNorms) {
							t.Errorf("gradient norms %v, want %v", norms, wantNorms)
						}
					})
				}
			}
		}
	}
}

// exactGradients sets this rank's gradients of a step; an expert's is on its rank alone. Rank 0
// sets those that the ranks share.
func (r *rank) exactGradients(step int) error {
	for _, g := range r.model.Groups {
		if g.Shared && r.comm.Rank() > 0 {
			continue
		}
		for _, p := range g.Params {
			for i := range p.Grad.F32() {
				if g.Experts || g.Shared {
					p.Grad.F32()[i] = exactGradient(p.Name, i, step, 0, 1)
				} else {
					p.Grad.F32()[i] = exactGradient(p.Name, i, step, r.comm.Rank(), r.comm.Size())
				}
			}
		}
	}
	return r.comm.Barrier()
}

// The norm is that of all parameters, each once: replicated gradients summed over the ranks, local
// ones of every rank.
func TestGradNorm(t *testing.T) {
	const ranks = 3
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		groups := []*moe.Group{group("all", c, tensor.FP32, 0, 200), group("own", nil, tensor.FP32, 0, 10)}
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

// The norm is the same bits for every number of ranks that share the parameters evenly, and of
// replicas of experts.
func TestGradNormOnAnyRanks(t *testing.T) {
	want := normOnRanks(t, 1, 1)
	for _, ranks := range []int{2, 4, 8} {
		for ep := 1; ep <= ranks; ep *= 2 {
			if got := normOnRanks(t, ranks, ep); got != want {
				t.Errorf("np %d, ep %d: norm %x, want %x", ranks, ep, got, want)
			}
		}
	}
}

// normOnRanks returns the norm of the same gradients on some ranks. Each has a part of those of the
// parameters that it shares with others.
func normOnRanks(t *testing.T, ranks, ep int) float64 {
	t.Helper()
	const experts = 8
	norms := make([]float64, ranks)
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		on, err := moe.NewMesh(c, mesh.Layout{World: ranks, PP: 1, DPReplicate: 1, DPShard: ranks, EP: ep})
		if err != nil {
			return err
		}
		lengths := make([]int, experts/ep)
		for i := range lengths {
			lengths[i] = 1000
		}
		groups := []*moe.Group{group("all", c, tensor.FP32, 4096-1500, 1000, 500), group("own", on.Replicas, tensor.FP32, 96, lengths...)}
		groups[1].Experts = true
		for i := range groups[0].Grad.F32()[:1500] {
			if c.Rank() == i%ranks {
				groups[0].Grad.F32()[i] = float32(math.Sin(float64(i)))
			}
		}
		for i := range len(lengths) * 1000 {
			if on.Replicas == nil || on.Replicas.Rank() == i%on.Replicas.Size() {
				groups[1].Grad.F32()[i] = float32(math.Cos(float64(on.EP.Rank()*len(lengths)*1000+i))) / 3
			}
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
