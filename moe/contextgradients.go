package moe

// Gradients of dense weights for sequences that ranks share. The gradient of a sequence is one
// chain of sums over its parts, in their order. If a sequence is on several hosts, each of them
// computes a piece of a weight, and adds zeros to the others.

import (
	"fmt"

	"spmoe/tensor"
)

// piece returns the rows of Grad that this rank computes in a pass: those of its own or, if a
// sequence is on several hosts, a part of those that ranks with its place have on each host.
func (w *weight) piece(p phase) [2]int {
	if p.cp == nil || p.cp.group.sent == nil {
		return w.rows
	}
	comm := p.cp.group.comm
	parts := divideRows(w.ownRows(), len(comm.Hosts()), w.unit)
	if host := comm.Host(); host < len(parts) {
		return [2]int{w.rows[0] + parts[host][0], w.rows[0] + parts[host][1]}
	}
	return [2]int{w.rows[0], w.rows[0]}
}

// nextRows is nextGrad for some of this rank's rows. The others are zeros.
func (w *weight) nextRows(p phase, rows [2]int) (to tensor.Tensor, adds bool) {
	to, adds = w.nextGrad(p)
	if rows == w.rows {
		return to, adds
	}
	if !adds {
		tensor.Zero(p.ex, to)
	}
	return to.Slice(rows[0]-w.rows[0], rows[1]-w.rows[0]), adds
}

// computeParts is compute for ranks that have parts of sequences. If sums cannot go on, the parts
// of a sequence are joined first.
func (w wgrad) computeParts(p phase, lists [][][]byte, at, n int) error {
	l, parts, own := w.layer, p.cp.ranks, w.layer.piece(p)
	if l.ownRows() == 0 {
		return nil
	}
	sum := l.gradientTree(p, own, len(lists)/parts, false)
	for first := 0; first < len(lists) && own[0] < own[1]; first += parts {
		to, _ := sum.next()
		some := lists[first : first+parts]
		if err := w.addParts(p, to, own, some, at, n); err != nil {
			return err
		}
		sum.push()
	}
	p.pushGrad(&l.weight)
	return nil
}

// addParts computes the gradient over the parts of a sequence.
func (w wgrad) addParts(p phase, to tensor.Tensor, own [2]int, lists [][][]byte, at, n int) error {
	if !w.layer.goesOn() {
		lists, at = [][][]byte{joined(p.ex, lists, at, n)}, 0
	}
	for i, list := range lists {
		if !w.product(p, to, own, false, i > 0, list[at:at+n]) {
			return fmt.Errorf("the operands of part %d do not fit", i)
		}
	}
	return nil
}

// goesOn reports whether a sum over rows can go on with that of earlier ones.
func (l *linear) goesOn() bool {
	if !l.mx.quantizesWgrad() {
		return (&Recipe{Sum: l.sum}).chains()
	}
	return l.mx.chains()
}
