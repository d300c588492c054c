package collective

import (
	"fmt"
	"sync"
	"testing"
)

// Split groups by color and orders by key, then by rank; the new communicators work at the same
// time. A negative color gives none.
func TestSplit(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		color := c.Rank()%4 - 1
		key := -(c.Rank() / 6) // ranks 6 and 7 come first, the others keep their order
		sub, err := c.Split(color, key)
		if err != nil {
			return err
		}
		if color < 0 {
			if sub != nil {
				return fmt.Errorf("color -1 got a communicator of %d", sub.Size())
			}
			return nil
		}
		var members []int64
		for _, front := range []bool{true, false} {
			for r := range c.Size() {
				if r%4-1 == color && (r >= 6) == front {
					members = append(members, int64(r))
				}
			}
		}
		if sub.Size() != len(members) {
			return fmt.Errorf("rank %d: the new communicator has %d ranks, want %d", c.Rank(), sub.Size(), len(members))
		}
		got := make([]int64, sub.Size())
		if err := AllGather(sub, got, []int64{int64(c.Rank())}); err != nil {
			return err
		}
		if members[sub.Rank()] != int64(c.Rank()) {
			return fmt.Errorf("rank %d is rank %d of %v", c.Rank(), sub.Rank(), members)
		}
		return wantEqual("members", got, members)
	})
}

// Communicators of communicators, and errors on them, carry a name that says where they come from.
func TestSplitOfSplit(t *testing.T) {
	errs := everyRank(4, func(c *Comm) error {
		half, err := c.Split(c.Rank()/2, 0)
		if err != nil {
			return err
		}
		again, err := half.Split(0, -c.Rank())
		if err != nil {
			return err
		}
		return AllReduce(again, make([]int32, 1+again.Rank()), Sum)
	})
	for r, err := range errs {
		m, ok := as[*MismatchError](err)
		if want := fmt.Sprintf("world/split1:%d/split1:0", r/2); !ok || m.Comm != want {
			t.Errorf("rank %d got %v, want a mismatch on %s", r, err, want)
		}
	}
}

// Each rank uses two communicators at once, from two goroutines.
func TestTwoCommunicatorsAtOnce(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		other, err := c.Split(0, -c.Rank()) // the same ranks in reverse
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, comm := range []*Comm{c, other} {
			wg.Go(func() {
				for round := range 200 {
					buf := []int64{int64(round), int64(comm.Rank() * (i + 1))}
					if errs[i] = AllReduce(comm, buf, Sum); errs[i] != nil {
						return
					}
					n := int64(comm.Size())
					want := []int64{int64(round) * n, n * (n - 1) / 2 * int64(i+1)}
					if errs[i] = wantEqual(fmt.Sprintf("round %d on communicator %d", round, i), buf, want); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if errs[0] != nil {
			return errs[0]
		}
		return errs[1]
	})
}
