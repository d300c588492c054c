package moe

// The calls of the exchange, with the seals of what it saves: the rows, and the places and weights
// of rows in its handle. The handle is compared before a call uses it. If it has changed, no row is
// moved to a place that does not exist. The pass is damaged anyway.

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// startDispatch sends the rows of x to the chosen experts. Rows from other ranks arrive until
// receive returns.
func (l *moeLayer) startDispatch(p phase, x, chosen tensor.Tensor, s *feedState) (ep.Arrival, error) {
	p.begin(Routed)
	s.handle.Rows = p.saved
	s.arriving[0] = p.arena.Mark()
	arrival, err := l.exchange.StartDispatch(p.ex, &s.handle, x, chosen)
	s.arriving[1] = p.arena.Mark()
	p.skip()
	return arrival, err
}

// receive waits for the rows of this rank's experts.
func (l *moeLayer) receive(p phase, a ep.Arrival, s *feedState) (tensor.Tensor, error) {
	rows, err := received(p.ex, a)
	if err == nil && p.sealing() {
		s.routing, s.weights = s.handle.Checksums() // of rows from other hosts too
		p.sealBetween(s.arriving[0], s.arriving[1])
	}
	return rows, err
}

// combine sets out to the weighted sums of the experts' results, y.
func (l *moeLayer) combine(p phase, y, weights, out tensor.Tensor, s *feedState) error {
	p.seal()
	p.checkRouting(s)
	err := l.exchange.Combine(p.ex, &s.handle, y, weights, out)
	if err == nil && p.sealing() {
		_, s.weights = s.handle.Checksums()
	}
	p.seal() // the rows that Combine keeps
	return err
}

// startCombineBackward sends the gradients of the experts' results to their ranks, and sets
// dweights.
func (l *moeLayer) startCombineBackward(p phase, dy, dweights tensor.Tensor, s *feedState) (ep.Arrival, error) {
	p.checkRouting(s)
	s.handle.Rows = p.saved
	return l.exchange.StartCombineBackward(p.ex, &s.handle, dy, dweights)
}

// dispatchBackward sets dx to the sums of the gradients of its rows.
func (l *moeLayer) dispatchBackward(p phase, drows, dx tensor.Tensor, s *feedState) error {
	p.checkRouting(s)
	err := l.exchange.DispatchBackward(p.ex, &s.handle, drows, dx)
	if err == nil {
		p.checkRouting(s)
	}
	return err
}

// checkRouting compares the handle.
func (p phase) checkRouting(s *feedState) {
	if !p.sealed {
		return
	}
	if routing, weights := s.handle.Checksums(); routing != s.routing || weights != s.weights {
		p.model.damage(1 + p.layer)
		s.handle.Mask()
	}
}
