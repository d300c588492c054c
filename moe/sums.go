package moe

// Which owner adds what to the gradient of a weight, when, and in which order. The table in doc.go
// is about the same: here are the owners, and one of them per weight.

import (
	"spmoe/tensor"
)

// stepSums sums the gradients of a model over the tokens of a step.
type stepSums struct {
	groups []*Group
	rows   rowStore // of routed experts
}

// ownerOf returns the owner of the gradient of a weight of a group.
func (s *stepSums) ownerOf(g *Group) sumOwner {
	switch {
	case g.Experts:
		return &rowSums{&s.rows, g.together}
	case g.together != nil:
		return g.together
	}
	return ownSums{}
}

// compute computes the gradients that wait, of all groups that ranks share. It is collective.
func (s *stepSums) compute(p phase) error {
	for _, g := range s.groups {
		if err := g.together.compute(p); err != nil {
			return err
		}
	}
	return nil
}

// ownSums are gradients that each rank sums over its own tokens, at once: those of norms, routers
// and biases, and of dense weights that no other rank of the host has. They are summed over ranks
// pass by pass: see sumPass.
type ownSums struct{}

func (o ownSums) add(p phase, l *linear, s *linearState) {
	l.mx.completeInput(p, s.x)
	if p.cp != nil {
		p.sequenceWgrad(&l.weight, s.dy.Tensor, s.x.Tensor)
		return
	}
	l.wgrad(p, &s.dy, s.x, p.batch.Seq)
	p.pushGrad(&l.weight)
}

// addRows adds dyᵀ·x of a pass, equally many rows of each sequence, to the gradient of a bias.
func (o ownSums) addRows(p phase, w *weight, dy, x tensor.Tensor) {
	if p.cp != nil {
		p.sequenceWgrad(w, dy, x)
		return
	}
	to, adds := w.nextGrad(p)
	tensor.Wgrad(p.ex, to.Mat(), dy.Mat(), x.Mat(), max(dy.Dim(0)/max(len(p.sequences), 1), 1), adds)
	p.pushGrad(w)
}
