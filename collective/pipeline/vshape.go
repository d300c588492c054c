package pipeline

// Schedules in which stages go down the ranks and back up: rank r has stages r and 2p-1-r, so the
// first and the last are on the same rank.

import "fmt"

// zeroBubbleV is ZBVZeroBubble. If F, I and W take the same time, ranks never wait between their
// first and their last action.
func zeroBubbleV(z size) (ranks [][]Slot) {
	full := max(z.microbatches, 2*z.ranks-1) // those beyond the micro-batches are left out
	for r := range z.ranks {
		l, first, last := newList(z.microbatches), r, 2*z.ranks-1-r
		l.bubbles(r)
		for range 2*(z.ranks-r) - 1 {
			l.forward(first)
		}
		for range r {
			l.forward(last)
			l.forward(first)
		}
		pass := func(stage int) { // the backward pass in two actions, one after the other
			l.inputGrad(stage)
			l.weightGrad(stage)
		}
		for range z.ranks - r {
			l.forward(last)
			pass(last)
		}
		for range full - z.ranks {
			l.forward(first)
			pass(first)
			l.forward(last)
			pass(last)
		}
		for range r {
			l.inputGrad(first)
			l.inputGrad(last)
		}
		for range z.ranks - r {
			l.inputGrad(first)
			l.weightGrad(first)
		}
		for range full {
			l.weightGrad(last)
		}
		for range full {
			l.weightGrad(first)
		}
		ranks = append(ranks, l.slots)
	}
	return ranks
}

func checkDualPipeV(z size) error {
	if z.microbatches < z.stages() {
		return fmt.Errorf("%d micro-batches: give at least %d, one per stage", z.microbatches, z.stages())
	}
	return nil
}

// dualPipeV is DualPipeV of DeepSeek: micro-batches pass forwards and backwards at the same time,
// and a rank overlaps both.
func dualPipeV(z size) (ranks [][]Slot) {
	for r := range z.ranks {
		l, first, last := newList(z.microbatches), r, 2*z.ranks-1-r
		after := z.ranks - 1 - r // ranks
		for range 2 * after {
			l.forward(first)
		}
		for range r + 1 {
			l.forward(first)
			l.forward(last)
		}
		for range after {
			l.inputGrad(last)
			l.weightGrad(-1)
			l.forward(last)
		}
		for i := range z.microbatches - z.ranks - after {
			if i == 0 && after == 0 { // its last stage has just done this micro-batch
				l.forward(first)
				l.backward(last)
			} else {
				l.overlap(first, last)
			}
			l.overlap(last, first)
		}
		for range after {
			l.backward(last)
			l.overlap(last, first)
		}
		l.drain(first, last, r)
		for len(l.owed) > 0 {
			l.weightGrad(-1)
		}
		ranks = append(ranks, l.slots)
	}
	return ranks
}

// drain appends the last backward passes of DualPipeV. From half of them on, they are cut into I
// and W, so that ranks before this one wait for less.
func (l *list) drain(first, last, rank int) {
	pass, half := l.backward, (rank+1)/2
	for i := range rank + 1 {
		if i == half && rank%2 == 1 {
			pass = l.inputGrad
		}
		pass(last)
		if i == half && rank%2 == 0 {
			pass = l.inputGrad
		}
		pass(first)
	}
	for l.next[[2]int{first, int(Backward)}] < l.microbatches {
		l.weightGrad(-1)
		l.inputGrad(first)
	}
}
