package collective

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Each rank runs two tasks, each with a communicator of its own and another number of all-reduces.
// All of them end, with the right sums. The rank's communicator works between such runs.
func TestTurns(t *testing.T) {
	const rounds = 20
	task := func(c *Comm, log *[]int, number, rounds int) error {
		for i := range rounds {
			*log = append(*log, number)
			sum := []int64{int64(i + c.Rank())}
			if err := AllReduce(c, sum, Sum); err != nil {
				return err
			}
			n := c.Size()
			if want := int64(n*i + n*(n-1)/2); sum[0] != want {
				return fmt.Errorf("round %d of task %d: sum %d, want %d", i, number, sum[0], want)
			}
		}
		return nil
	}
	alternate := func(c *Comm) error {
		var turns Turns
		comms := [2]*Comm{}
		for i := range comms {
			own, err := c.Split(0, c.Rank())
			if err != nil {
				return err
			}
			turns.Add(own)
			if comms[i], err = own.Split(0, own.Rank()); err != nil { // inherits the turns
				return err
			}
		}
		var log []int
		for _, lengths := range [][2]int{{rounds, rounds}, {rounds, 1}, {0, rounds}} {
			var errs [2]error
			log = log[:0]
			now := 0
			turns.Run(func(next int) {
				if next == now {
					errs[0] = fmt.Errorf("task %d goes on twice", now)
				}
				now = next
			}, func() { errs[0] = task(comms[0], &log, 0, lengths[0]) }, func() { errs[1] = task(comms[1], &log, 1, lengths[1]) })
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			if now != 0 || len(log) != lengths[0]+lengths[1] {
				return fmt.Errorf("task %d is the last, after %d rounds of %v", now, len(log), lengths)
			}
		}
		return alone(c, comms[0])
	}
	forKinds(t, kinds, alternate)
	forKinds(t, hostKinds, alternate)
}

// alone checks that a communicator works between runs of tasks.
func alone(c, was *Comm) error {
	all := make([]int64, was.Size())
	if err := AllGather(was, all, []int64{int64(was.Rank())}); err != nil {
		return err
	}
	if !slices.IsSorted(all) || c.Size() != len(all) {
		return fmt.Errorf("gathered %v", all)
	}
	return nil
}

// A task that fails ends, and so does the other one, which learns of it.
func TestTurnsOfLostRank(t *testing.T) {
	lost := errors.New("lost")
	err := NewWorld(2).Run(func(c *Comm) error {
		var turns Turns
		var comms [2]*Comm
		var errs [2]error
		for i := range comms {
			if comms[i], errs[i] = c.Split(0, c.Rank()); errs[i] != nil {
				return errs[i]
			}
			turns.Add(comms[i])
		}
		if c.Rank() == 1 {
			return lost
		}
		turns.Run(func(int) {}, func() { errs[0] = comms[0].Barrier() }, func() { errs[1] = comms[1].Barrier() })
		var abort *AbortError
		for i, err := range errs {
			if !errors.As(err, &abort) || abort.Rank != 1 {
				t.Errorf("task %d: %v", i, err)
			}
		}
		return errs[0]
	})
	if !errors.Is(err, lost) {
		t.Error(err)
	}
}
