package collective

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAllGather(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		for round := range len(lengths) + 6 {
			var counts []int
			gather := func(dst, src []int64) error { return AllGatherV(c, dst, src, counts) }
			if round < len(lengths) {
				counts = slices.Repeat([]int{lengths[round]}, c.Size())
				gather = func(dst, src []int64) error { return AllGather(c, dst, src) }
			} else {
				counts = ragged(c.Size(), round-len(lengths))
			}
			var want []int64
			for r, n := range counts {
				want = append(want, marks(round, r, n)...)
			}
			own := marks(round, c.Rank(), counts[c.Rank()])
			apart, inPlace := make([]int64, len(want)), make([]int64, len(want))
			if err := gather(apart, own); err != nil {
				return err
			}
			part := inPlace[sum(counts[:c.Rank()]):][:len(own)]
			copy(part, own)
			if err := gather(inPlace, part); err != nil {
				return err
			}
			for what, got := range map[string][]int64{"apart": apart, "in place": inPlace} {
				if err := wantEqual(what, got, want); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ragged divides unevenly among n ranks: everything 0 in round 0, one rank has all in round 1,
// otherwise a mixture that has zeros in it.
func ragged(n, round int) []int {
	counts := make([]int, n)
	switch round {
	case 0:
	case 1:
		counts[n/2] = 1000
	default:
		for r := range counts {
			counts[r] = (r*7 + round*3) % 5 * 37
		}
	}
	return counts
}

func TestAllToAll(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		for round, n := range lengths {
			dst := make([]int64, n*c.Size())
			if err := AllToAll(c, dst, marks(round, c.Rank(), len(dst))); err != nil {
				return err
			}
			var want []int64
			for r := range c.Size() {
				want = append(want, marks(round, r, len(dst))[c.Rank()*n:][:n]...)
			}
			if err := wantEqual(fmt.Sprintf("all-to-all of %d", n), dst, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// All-to-all-v puts every element where the reference, a loop over pairs, puts it, and leaves the
// gaps alone.
func TestAllToAllV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "ranks")
		pairs := rapid.SliceOfN(rapid.IntRange(0, 9), n*n, n*n).Draw(t, "counts") // [from, to]
		gap := rapid.IntRange(0, 3).Draw(t, "gap")
		backwards := rapid.Bool().Draw(t, "backwards")

		send, recv := make([]buffer, n), make([]buffer, n)
		for r := range n {
			from, to := make([]int, n), make([]int, n)
			for j := range n {
				to[j], from[j] = pairs[r*n+j], pairs[j*n+r]
			}
			send[r], recv[r] = newBuffer(to, gap, false), newBuffer(from, gap, backwards)
			copy(send[r].data, marks(1, r, len(send[r].data)))
		}
		want := make([][]int64, n)
		for to := range n {
			want[to] = make([]int64, len(recv[to].data))
			for from := range n {
				for i := range pairs[from*n+to] {
					want[to][recv[to].displs[from]+i] = send[from].data[send[from].displs[to]+i]
				}
			}
		}
		err := NewWorld(n).Run(func(c *Comm) error {
			s, r := send[c.Rank()], recv[c.Rank()]
			if err := AllToAllV(c, r.data, r.counts, r.displs, s.data, s.counts, s.displs); err != nil {
				return err
			}
			return wantEqual("dst", r.data, want[c.Rank()])
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// buffer is one side of an all-to-all-v.
type buffer struct {
	data           []int64
	counts, displs []int
}

// newBuffer lays the parts out with gaps between them, in rank order or backwards.
func newBuffer(counts []int, gap int, backwards bool) buffer {
	b := buffer{counts: counts, displs: make([]int, len(counts))}
	order := make([]int, len(counts))
	for i := range order {
		order[i] = i
	}
	if backwards {
		slices.Reverse(order)
	}
	at := gap
	for _, r := range order {
		b.displs[r] = at
		at += counts[r] + gap
	}
	b.data = make([]int64, at)
	return b
}
