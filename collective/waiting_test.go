package collective

import (
	"runtime"
	"strings"
	"testing"
)

// untilOthersWait returns when all other ranks are parked or about to be.
func untilOthersWait(c *Comm) {
	for r := range c.Size() {
		for r != c.Rank() && c.group.world.heap.Waiting(r) == 0 {
			runtime.Gosched()
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
