package collective

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// untilOthersWait returns when all other ranks are parked or about to be.
func untilOthersWait(c *Comm) {
	for r := range c.Size() {
		for r != c.Rank() && c.group.world.heap.Waiting(r) == 0 {
			runtime.Gosched()
		}
	}
}

// The rank that comes last is put all waiting down to, although it is far ahead when the others
// wake up.
func TestWaitsBlameTheLast(t *testing.T) {
	for kind, run := range kinds {
		for _, n := range []int{2, 3, 8} {
			t.Run(fmt.Sprintf("%s/np%d", kind, n), func(t *testing.T) {
				late := n / 2
				if err := run(n, func(c *Comm) error {
					if c.Rank() == late {
						untilOthersWait(c)
					}
					if err := c.Barrier(); err != nil {
						return err
					}
					waits := slices.Clone(c.Waits())
					if err := c.Barrier(); err != nil {
						return err
					}
					if c.Rank() != late && waits[late] <= 0 {
						return fmt.Errorf("rank %d has waited %v for rank %d", c.Rank(), waits[late], late)
					}
					waits[late] = 0
					if c.Rank() != late && slices.Max(waits) > 0 {
						return fmt.Errorf("rank %d has waited for others than rank %d: %v", c.Rank(), late, waits)
					}
					if c.Rank() == late && slices.ContainsFunc(waits, func(d time.Duration) bool { return d != 0 }) {
						return fmt.Errorf("rank %d, who came last, has waited: %v", late, waits)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Calls that a failure refuses leave alone what a slower peer still reads of the calls before.
func TestRefusedCallsPublishNothing(t *testing.T) {
	w := NewWorld(2)
	if err := w.Run(func(c *Comm) error { return AllGather(c, make([]int32, 2), []int32{int32(c.Rank())}) }); err != nil {
		t.Fatal(err)
	}
	w.Abort(1, errDisk)
	c := w.Comm(0)
	before := [2]slot{*c.group.board.slot(0, 0), *c.group.board.slot(0, 1)}
	for i := range 3 {
		err := AllGather(c, make([]int32, 2), []int32{77})
		if a, ok := as[*AbortError](err); !ok || !strings.HasPrefix(a.Waiting, "all-gather #2") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if after := [2]slot{*c.group.board.slot(0, 0), *c.group.board.slot(0, 1)}; after != before {
		t.Error("the slots have changed")
	}
}
