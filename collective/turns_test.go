package collective

import (
	"errors"
	"fmt"
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
		return comms[0].Barrier()
	}
	forKinds(t, kinds, alternate)
	forKinds(t, hostKinds, alternate)
}
