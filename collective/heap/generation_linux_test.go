package heap

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"
)

// withVaults is two mappings of a heap whose ranks have vaults.
func withVaults(t *testing.T, ranks int, vault int64) (a, b *Heap) {
	t.Helper()
	file, err := Create(Whole(ranks), 64, 8192, vault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return open(t, file), open(t, file)
}

// A generation begins with nothing of the one before but the vaults: control area, failure, states
// and regions are as new.
func TestGeneration(t *testing.T) {
	const ranks = 2
	launcher, rank := withVaults(t, ranks, 5000)
	old := rank.Allocator(1).Allocate(300)
	for i := range old {
		old[i] = 7
	}
	rank.Control()[3] = 9
	copy(rank.Vault(1).Memory(), "kept")
	rank.SetState(0, Running)
	rank.SetState(1, Running)
	if !rank.Fail(0, Launcher, "killed") || launcher.AllParked() {
		t.Fatal("no failure, or parked already")
	}
	var parked sync.WaitGroup
	for r := range ranks {
		parked.Go(func() { rank.Park(r, 1) })
	}
	for !launcher.AllParked() {
		runtime.Gosched()
	}
	launcher.Begin()
	parked.Wait()
	if rank.Generation() != 1 || rank.Failed() || rank.Control()[3] != 0 || rank.StateOf(0) != Absent || rank.StateOf(1) != Absent {
		t.Errorf("generation %d, failed %v, control %d, states %d and %d", rank.Generation(), rank.Failed(), rank.Control()[3], rank.StateOf(0), rank.StateOf(1))
	}
	if got := string(launcher.Vault(1).Memory()[:4]); got != "kept" {
		t.Errorf("the vault has %q", got)
	}
	// The same memory is handed out again, by this process or another, and is zero again.
	for name, h := range map[string]*Heap{"survivor": rank, "successor": launcher} {
		again := h.Allocator(1).Allocate(300)
		if offset, _ := h.Offset(unsafe.Pointer(&again[0])); offset != launcher.start+launcher.region {
			t.Errorf("%s: memory at %d", name, offset)
		}
		if !slices.Equal(again, make([]byte, 300)) {
			t.Errorf("%s: memory has something of the generation before", name)
		}
		again[1] = 1
	}
	if !rank.Fail(1, 0, "later") {
		t.Error("a failure of the new generation does not count")
	}
}

// What all ranks keep is what the last of them keeps.
func TestKept(t *testing.T) {
	h, other := withVaults(t, 3, 100)
	for i, test := range []struct {
		rank int
		step int64
		want int64
		ok   bool
	}{{0, 0, -1, false}, {1, 0, -1, false}, {2, 0, 0, true}, {2, 1, 0, true}, {0, 1, 0, true}, {1, 1, 1, true}, {1, 0, 0, true}} {
		h.Vault(test.rank).Keep(test.step)
		if step, ok := other.Kept(); step != test.want || ok != test.ok {
			t.Errorf("%d: %d, %v, want %d, %v", i, step, ok, test.want, test.ok)
		}
	}
}

// Vaults do not overlap each other or the regions, and goroutines have none.
func TestVaults(t *testing.T) {
	h, _ := withVaults(t, 3, 5000)
	for r := range 3 {
		if len(h.Vault(r).Memory()) < 5000 {
			t.Errorf("rank %d has %d bytes", r, len(h.Vault(r).Memory()))
		}
		for i := range h.Vault(r).Memory() {
			h.Vault(r).Memory()[i] = byte(r + 1)
		}
	}
	for r := range 3 {
		if m := h.Vault(r).Memory(); m[0] != byte(r+1) || m[len(m)-1] != byte(r+1) {
			t.Errorf("the vault of rank %d is also another's", r)
		}
		if m := h.Allocator(r).Allocate(8192); !slices.Equal(m, make([]byte, 8192)) {
			t.Errorf("the region of rank %d is in a vault", r)
		}
	}
	if m := New(Whole(2), 0).Vault(1).Memory(); m != nil {
		t.Errorf("a goroutine has a vault of %d bytes", len(m))
	}
}
