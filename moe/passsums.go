package moe

// Gradients that each of several ranks has for its own tokens, of norms and routers, or each host
// for those of its ranks, of dense weights. They are summed over the ranks pass by pass: a pass has
// the next sequences of the global batch, so its sum is a subtree of that of the step. A rank that
// added up its own passes first would have another sum.
//
// The sum of the last pass of a step is left to the optimizer, which needs it at once.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Divide says which elements of Grad each of some peers owns. Parts of a group may be divided each
// by itself. The peers are Ranks or, if hosts hold the group once each, Across. Passes with
// [Batch.More] then end with a sum over peers, and [Group.SumGrad] follows the last pass of a step.
// Ranks of one host that share the group have nothing to divide. If the group contains the head,
// whose gradient Forward adds, only one pass may be in flight.
func (g *Group) Divide(peers *collective.Comm, parts ...Division) {
	g.sums = nil
	for _, d := range parts {
		own := Division{d.First, d.Counts[:peers.Rank()]}.End()
		s := sliceSum{peers: peers, counts: d.Counts, all: g.Grad.Slice(d.First, d.End()), own: g.Grad.Slice(own, own+d.Counts[peers.Rank()])}
		s.passes.dims = s.own.Dims()
		g.sums = append(g.sums, s)
	}
}

// Slices says, weight by weight, which elements of the flat vectors each rank computes the
// gradients of, if these are experts with replicas on several hosts. Their gradients are complete,
// and exist on the host of that rank only. Slices follow each other in the order of Ranks or, with
// Across, in that of the places on hosts. nil: it is another group.
func (g *Group) Slices() (all []Division) {
	if g.together == nil || g.together.order == nil {
		return nil
	}
	for _, w := range g.weights {
		d, cols := Division{First: w.at}, w.Grad.Mat().Cols
		for _, rank := range g.together.order {
			rows := w.shares[rank]
			d.Counts = append(d.Counts, (rows[1]-rows[0])*cols)
		}
		all = append(all, d)
	}
	return all
}

// SumGrad completes the sums over ranks and passes after the last pass of a step. They are in this
// rank's elements of Grad. The others then hold what is of no use. SumGrad is collective among the
// peers. All ranks that share Grad must have completed it.
func (g *Group) SumGrad(ex *tensor.Exec) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	for i := range g.sums {
		s := &g.sums[i]
		if err := s.reduce(s.own); err != nil {
			return fmt.Errorf("summing %s gradients: %w", g.Name, err)
		}
		s.passes.addTo(ex, s.own)
	}
	return nil
}

// sumPass sums the gradients of a pass over the ranks and adds them to those of earlier passes. The
// next pass stores its own.
func (s *stepSums) sumPass(p phase) error {
	ex := p.ex
	for _, g := range s.groups {
		if p.ex.Dry() && g.Across != nil { // a dry run does not divide groups
			g.restart()
		}
		if len(g.sums) == 0 || g.sums[0].peers.Size() < 2 {
			continue // one rank adds up its passes itself
		}
		g.completeGrad(p)
		if err := g.meet(ex); err != nil { // others may still complete their rows
			return err
		}
		for j := range g.sums {
			if err := g.sums[j].addPass(p); err != nil {
				return fmt.Errorf("summing %s gradients: %w", g.Name, err)
			}
		}
		g.restart()
	}
	return nil
}

// restart makes the next pass store its own gradients.
func (g *Group) restart() {
	for _, w := range g.weights {
		w.passes.restart()
	}
}
