package pipeline

// Schedules in which stages go around the ranks: rank r has stages r, r+p, r+2p and so on.

import "fmt"

// oneForwardOneBackward is 1F1B. A rank begins with the forward passes that fill the ranks after
// it, then takes turns, so that it holds few activations.
func oneForwardOneBackward(z size) (ranks [][]Slot) {
	for r := range z.ranks {
		l, ahead := newList(z.microbatches), min(z.ranks-r, z.microbatches)
		for range ahead {
			l.forward(r)
		}
		for i := range z.microbatches {
			l.backward(r)
			if i+ahead < z.microbatches {
				l.forward(r)
			}
		}
		l.add(Action{Stage: r, Kind: ReduceGrad})
		ranks = append(ranks, l.slots)
	}
	return ranks
}

// rounds returns in how many rounds the micro-batches pass, and the micro-batches of each. In a
// round, a rank does all of them in its first stage, then all in its second, and so on.
func (z size) rounds() (rounds, each int) {
	rounds = max(z.microbatches/z.ranks, 1)
	return rounds, z.microbatches / rounds
}

func checkRounds(z size) error {
	if rounds, _ := z.rounds(); z.microbatches%rounds != 0 {
		return fmt.Errorf("%d micro-batches cannot be divided into %d rounds of %d ranks: give a multiple of %[2]d", z.microbatches, rounds, z.ranks)
	}
	return nil
}

// turns says which stage a rank is at, in its forward and in its backward passes.
type turns struct {
	z    size
	rank int
}

func (t turns) forward(i int) int {
	_, each := t.z.rounds()
	return t.rank + i/each%t.z.perRank*t.z.ranks
}

func (t turns) backward(i int) int {
	_, each := t.z.rounds()
	return t.rank + (t.z.perRank-1-i/each%t.z.perRank)*t.z.ranks
}

// ahead returns the number of forward passes before the first backward pass.
func (t turns) ahead(perRank int) int {
	_, each := t.z.rounds()
	return min((t.z.perRank-1)*each+perRank*(t.z.ranks-1-t.rank), t.z.perRank*t.z.microbatches)
}

// interleaved is Interleaved1F1B: 1F1B with several stages on each rank.
func interleaved(z size) (ranks [][]Slot) {
	for r := range z.ranks {
		l, t, all := newList(z.microbatches), turns{z, r}, z.perRank*z.microbatches
		ahead := t.ahead(2)
		l.bubbles(r)
		for i := range ahead {
			l.forward(t.forward(i))
		}
		firstBackward := z.stages() + 2*(z.ranks-1-r) // the earliest slot in which it is possible
		l.bubbles(firstBackward - ahead - r)
		for i := range all {
			switch {
			case i+ahead < all:
				l.forward(t.forward(i + ahead))
			case ahead > 0:
				l.bubbles(1)
			}
			l.backward(t.backward(i))
		}
		ranks = append(ranks, l.slots)
	}
	return ranks
}

// interleavedZeroBubble is InterleavedZeroBubble: ranks get going with half the forward passes,
// and W fills the time in which they would wait for each other at the end. W comes after as many
// other I as there are ranks before this one.
func interleavedZeroBubble(z size) (ranks [][]Slot) {
	for r := range z.ranks {
		l, t, all := newList(z.microbatches), turns{z, r}, z.perRank*z.microbatches
		ahead := t.ahead(1)
		l.bubbles(r)
		for i := range ahead {
			l.forward(t.forward(i))
		}
		l.bubbles(z.ranks - 1 - r)
		for i := range all {
			if i+ahead < all {
				l.forward(t.forward(i + ahead))
			}
			l.inputGrad(t.backward(i))
			if i >= r {
				l.weightGrad(-1)
			}
		}
		for len(l.owed) > 0 {
			l.weightGrad(-1)
		}
		ranks = append(ranks, l.slots)
	}
	return delayed(ranks)
}

// delayed inserts a bubble wherever the input of a forward pass comes later, if all actions take
// the same time.
func delayed(ranks [][]Slot) [][]Slot {
	done, next, out := map[Action]bool{}, make([]int, len(ranks)), make([][]Slot, len(ranks))
	for left := true; left; {
		left = false
		var now Slot // what ranks do in this slot
		for r, list := range ranks {
			if next[r] == len(list) {
				continue
			}
			left = true
			slot := list[next[r]]
			for _, a := range slot {
				if a.Kind == Forward && a.Stage > 0 && !done[Action{a.Stage - 1, Forward, a.Microbatch}] {
					slot = nil
					next[r]--
				}
			}
			next[r]++
			out[r] = append(out[r], slot)
			now = append(now, slot...)
		}
		for _, a := range now {
			done[a] = true
		}
	}
	return out
}
