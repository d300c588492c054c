package collective

import (
	"errors"
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

// The error of a rank that waits says at which step it is.
func TestAbortStep(t *testing.T) {
	const n, failed = 3, 1
	for kind, run := range kinds {
		err := run(n, func(c *Comm) error {
			for step := range 5 {
				c.SetStep(step)
				if c.Rank() == failed && step == 4 {
					untilOthersWait(c)
					return errDisk
				}
				err := c.Barrier()
				if step < 4 {
					if err != nil {
						return err
					}
					continue
				}
				for range 2 { // waiting, and refused
					a, ok := as[*AbortError](err)
					if !ok || a.Rank != failed || a.Step != 4 || !strings.Contains(err.Error(), "was waiting at step 4:") {
						t.Errorf("%s: rank %d got %v", kind, c.Rank(), err)
					}
					err = c.Barrier()
				}
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("%s: %v", kind, err)
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

// However many ranks fail at once, the failure is one of theirs with its own error.
func TestAbortsAtOnce(t *testing.T) {
	const n = 8
	errs := make([]error, n)
	for r := range errs {
		errs[r] = fmt.Errorf("error of rank %d", r)
	}
	for range 200 {
		err := NewWorld(n).Run(func(c *Comm) error {
			if err := c.Barrier(); err != nil {
				return err
			}
			return errs[c.Rank()]
		})
		first := slices.IndexFunc(errs, func(e error) bool { return errors.Is(err, e) })
		if first < 0 || !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d:", first)) {
			t.Fatalf("got %v", err)
		}
	}
}

// A rank that fails while another is just declaring its failure declares that one's.
func TestAbortDuringAnother(t *testing.T) {
	w := NewWorld(3)
	w.failure.Store(&failure{1, errDisk})
	w.Abort(2, errors.New("another"))
	if f := w.failed(); f == nil || f.rank != 1 || f.err != errDisk {
		t.Errorf("got %v", f)
	}
}
