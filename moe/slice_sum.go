package moe

import (
	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Division says which elements of a flat vector each of some ranks owns, one range after the other
// from element First on: Counts[r] for rank r.
type Division struct {
	First  int
	Counts []int
}

// End returns the end of the last range.
func (d Division) End() (end int) {
	end = d.First
	for _, n := range d.Counts {
		end += n
	}
	return end
}

// sliceSum is this rank's slice of the sum over ranks and passes of some gradients.
type sliceSum struct {
	peers  *collective.Comm
	counts []int         // elements that each of peers owns
	all    tensor.Tensor // those of all peers, of this rank's tokens in a pass
	own    tensor.Tensor // those of this rank; invalid: they have no place in all
	passes sumTree       // the sum of own over passes
}

// reduce sets to to the sum over peers of this rank's elements.
func (s *sliceSum) reduce(to tensor.Tensor) error {
	return collective.ReduceScatter(s.peers, to.F32(), s.all.F32(), s.counts, collective.Sum)
}

// addPass sums the gradients of a pass over peers, and adds them to those of earlier passes. The
// next pass overwrites all.
func (s *sliceSum) addPass(p phase) error {
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	sum, adds := s.passes.next(p.ex, p.size(), p.completes())
	to := sum
	if adds {
		if to = s.own; !to.Valid() {
			to = p.ex.New(tensor.FP32, sum.Len())
		}
	}
	err := s.reduce(to)
	if adds {
		add(p.ex, sum, to)
	}
	s.passes.push(p.ex, p.completes())
	return err
}
