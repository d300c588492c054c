package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/collective"
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
				norms[r.comm.Rank()] = append(norms[r.comm.Rank()], r.opt.step(t, 0.01*float64(step+1)))
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
						got.complete(t, dtype)
						if !slices.Equal(norms, wantNorms) {
							t.Errorf("gradient norms %v, want %v", norms, wantNorms)
						}
					})
				}
			}
		}
	}
}

// complete checks that each element of each parameter has one owner, and that the working weights
// are the master weights, rounded.
func (s *wholeState) complete(t *testing.T, dtype tensor.DType) {
	t.Helper()
	for name, owners := range s.covered {
		for i, n := range owners {
			work, master := s.work[name][i], s.vectors[MasterName][name][i]
			rounded := dtype == tensor.BF16 && work == tensor.ToBFloat16(master).Float32()
			if n != 1 || work != master && !rounded {
				t.Fatalf("element %d of %s has %d owners, and the working weight %g for %g", i, name, n, work, master)
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
