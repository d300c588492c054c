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

// passSums is this rank's part of the sums over ranks of a part of a group's gradients.
type passSums struct {
	peers  *collective.Comm
	counts []int         // elements of Grad that each of peers owns
	all    tensor.Tensor // the elements of Grad that peers own
	own    tensor.Tensor // those of this rank
	// the sum of the passes of this step that were summed over ranks: as long as own, and valid if
	// any is set
	earlier tensor.Tensor
	any     bool
	sealed  seal    // earlier
	others  [2]seal // what peers read, before and after own
	broken  bool    // earlier has changed by itself since ZeroGrad
}

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

// Divide says which elements of Grad each of some peers owns. Parts of a group may be divided each
// by itself. The peers are Ranks or, if hosts hold the group once each, Across. Passes with
// [Batch.More] then end with a sum over peers, and [Group.SumGrad] follows the last pass of a step.
// Ranks of one host that share the group have nothing to divide. If the group contains the head,
// whose gradient Forward adds, only one pass may be in flight.
func (g *Group) Divide(peers *collective.Comm, parts ...Division) {
	g.sums = nil
	for _, d := range parts {
		s := passSums{peers: peers, counts: d.Counts, all: g.Grad.Slice(d.First, d.End())}
		own := Division{d.First, d.Counts[:peers.Rank()]}.End()
		s.own = g.Grad.Slice(own, own+d.Counts[peers.Rank()])
		g.sums = append(g.sums, s)
	}
}

// SumGrad completes the sums over ranks and passes after the last pass of a step. They are in this
// rank's elements of Grad. The others then hold what is of no use. SumGrad is collective among the
// peers. All ranks that share Grad must have completed it.
func (g *Group) SumGrad(ex *tensor.Exec) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	for i := range g.sums {
		if err := g.sums[i].complete(ex); err != nil {
			return fmt.Errorf("summing %s gradients: %w", g.Name, err)
		}
	}
	return nil
}

// complete sums the gradients of the last pass over the ranks and adds those of earlier passes.
func (s *passSums) complete(ex *tensor.Exec) error {
	if err := collective.ReduceScatter(s.peers, s.own.F32(), s.all.F32(), s.counts, collective.Sum); err != nil {
		return err
	}
	for i := range s.others {
		s.broken = s.broken || s.others[i].broken(ex)
	}
	s.others = [2]seal{}
	if s.any {
		tensor.Add(ex, s.own.Mat(), s.earlier.Mat(), s.own.Mat())
	}
	return nil
}

// SealSums seals what peers of this host read in SumGrad, which then compares it.
// [Model.CheckGrad] has the result.
func (g *Group) SealSums(ex *tensor.Exec) {
	for i := range g.sums {
		s := &g.sums[i]
		if len(s.peers.Hosts()) > 1 {
			continue
		}
		own := Division{0, s.counts[:s.peers.Rank()]}.End()
		s.others = [2]seal{newSeal(ex, s.all.Slice(0, own).Bytes()), newSeal(ex, s.all.Slice(own+s.own.Len(), s.all.Len()).Bytes())}
	}
}

// sumPass sums the gradients of a pass over the ranks and adds them to those of earlier passes. The
// next pass stores its own.
func (p *Pass) sumPass(ex *tensor.Exec) error {
	for i, g := range p.model.Groups {
		if len(g.sums) == 0 || g.sums[0].peers.Size() < 2 {
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
		for j := range g.sums {
			g.sums[j].save(ex, p.sealed)
		}
		for _, w := range g.weights {
			w.stale = true
		}
	}
	return nil
}

// save saves the sums up to a pass, since the next one overwrites Grad.
func (s *passSums) save(ex *tensor.Exec, seal bool) {
	if !s.earlier.Valid() {
		s.earlier = ex.NewLasting(tensor.FP32, s.own.Len())
	}
	if !ex.Dry() {
		copy(s.earlier.Bytes(), s.own.Bytes())
	}
	if s.any = true; seal {
		s.sealed = newSeal(ex, s.earlier.Bytes())
	}
}

// reset drops the sums of a step.
func (s *passSums) reset() { s.any, s.sealed, s.others, s.broken = false, seal{}, [2]seal{}, false }

// check compares the saved sums with their seal, and removes it.
func (s *passSums) check(ex *tensor.Exec) {
	s.broken = s.broken || s.sealed.broken(ex)
	s.sealed = seal{}
}
