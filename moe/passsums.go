package moe

// Gradients that each of several ranks has for its own tokens, of norms and routers, or each host
// for those of its ranks, of dense weights. They are summed pass by pass, because that is the order
// of one rank: the gradient of a pass is a tree over the sequences of all ranks, and passes are
// added one after the other. A rank that added up its own passes first would have another sum.
//
// The sum of the last pass of a step is left to the optimizer, which needs it at once.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// passSums is this rank's part of the sums of a group's gradients over ranks.
type passSums struct {
	peers  *collective.Comm // nil: there are no sums
	counts []int            // elements of Grad that each of peers owns
	all    tensor.Tensor    // the elements of Grad that peers own
	own    tensor.Tensor    // those of this rank
	// the sum of the passes of this step that were summed over ranks: as long as own, and valid if
	// any is set
	earlier tensor.Tensor
	any     bool
	sealed  seal // earlier
	broken  bool // earlier has changed by itself since ZeroGrad
}

// Divide says which elements of Grad each of some peers owns, one range after the other from
// element first on: counts[r] for rank r. The peers are Ranks or, if hosts hold the group once
// each, Across. Passes with [Batch.More] then end with a sum over peers, and [Group.SumGrad]
// follows the last pass of a step. Ranks of one host that share the group have nothing to divide.
// If the group contains the head, whose gradient Forward adds, only one pass may be in flight.
func (g *Group) Divide(peers *collective.Comm, first int, counts []int) {
	s := passSums{peers: peers, counts: counts}
	end := first
	for r, n := range counts {
		if r == peers.Rank() {
			s.own = g.Grad.Slice(end, end+n)
		}
		end += n
	}
	s.all = g.Grad.Slice(first, end)
	g.sums = s
}

// SumGrad completes the sums over ranks and passes after the last pass of a step. They are in this
// rank's elements of Grad. The others then hold what is of no use. SumGrad is collective among the
// peers. All ranks that share Grad must have completed it.
func (g *Group) SumGrad(ex *tensor.Exec) error {
	s := &g.sums
	defer ex.Enter(ex.Enter(profile.Collectives))
	if err := collective.ReduceScatter(s.peers, s.own.F32(), s.all.F32(), s.counts, collective.Sum); err != nil {
		return fmt.Errorf("summing %s gradients: %w", g.Name, err)
	}
	if s.any {
		tensor.Add(ex, s.own.Mat(), s.earlier.Mat(), s.own.Mat())
	}
	return nil
}

// sumPass sums the gradients of a pass over the ranks and adds them to those of earlier passes. The
// next pass stores its own.
func (p *Pass) sumPass(ex *tensor.Exec) error {
	for i, g := range p.model.Groups {
		if len(g.sums.counts) < 2 {
			continue // one rank adds up its passes itself
		}
		g.completeGrad(ex)
		if p.sealed {
			// A rank that compared before slower ranks are here would miss what changes meanwhile.
			if err := g.Ranks.Barrier(); err != nil {
				return err
			}
			p.model.CheckGrad(ex, i)
		}
		if err := g.meet(ex); err != nil { // others may still complete or check their rows
			return err
		}
		if err := g.SumGrad(ex); err != nil {
			return err
		}
		g.sums.save(ex, p.sealed)
		for _, w := range g.weights {
			w.stale = true
		}
	}
	return nil
}

// save saves the sums up to a pass, since the next one overwrites Grad.
func (s *passSums) save(ex *tensor.Exec, seal bool) {
	if !s.earlier.Valid() {
		s.earlier = tensor.New(tensor.FP32, s.own.Len())
	}
	copy(s.earlier.Bytes(), s.own.Bytes())
	if s.any = true; seal {
		s.sealed = newSeal(ex, s.earlier.Bytes())
	}
}

// reset drops the sums of a step.
func (s *passSums) reset() { s.any, s.sealed, s.broken = false, seal{}, false }

// check compares the saved sums with their seal, and removes it.
func (s *passSums) check(ex *tensor.Exec) {
	s.broken = s.broken || s.sealed.broken(ex)
	s.sealed = seal{}
}
