package spmd

import (
	"errors"
	"os/exec"
	"testing"

	"spmoe/collective/heap"
)

// TestEndAfterFinish: a process that ends when all ranks have finished has done its work, unless it
// has given up. Those who have finished with it would then wait for ever.
func TestEndAfterFinish(t *testing.T) {
	for _, c := range []struct {
		name    string
		gives   bool // up
		command string
		fails   bool
	}{
		{"gave up", true, "false", true},
		{"did its work beside one who gave up", true, "true", false},
		{"did its work", false, "true", false},
		{"was killed behind its work", false, "false", false},
	} {
		file, err := heap.Create(heap.Whole(2), 0, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		h, err := heap.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		other, ending := exec.Command("sleep", "60"), exec.Command(c.command)
		if err := errors.Join(other.Start(), ending.Start()); err != nil {
			t.Fatal(err)
		}
		l := &launch{Processes: &Processes{Ranks: 2, Restarts: 1, Vault: 1}, heap: h, alive: 2}
		l.ranks = []*process{{cmd: other, err: &tail{}}, {rank: 1, cmd: ending, err: &tail{}}}
		if c.gives {
			h.Fail(1, 1, "it gives up")
		}
		h.SetState(0, heap.Finished)
		h.SetState(1, heap.Finished)
		ending.Wait()
		l.ended(l.ranks[1])
		if (l.failed != nil) != c.fails || l.healing {
			t.Errorf("%s: failed for good: %v; healed: %t", c.name, l.failed, l.healing)
		}
		if l.failed == nil { // or whoever has finished was killed: what it waits for will not come
			other.Process.Kill()
		}
		other.Wait()
	}
}
