package heap

import "testing"

// A request to stop reaches those who wait for it, those who come later, and the ranks of the next
// generation. The first reason counts.
func TestStop(t *testing.T) {
	launcher, rank := withVaults(t, 1, 100)
	seen := make(chan uint32)
	for range 3 {
		go func() { seen <- rank.AwaitStop() }()
	}
	launcher.Stop(15)
	launcher.Stop(2)
	for range 3 {
		if reason := <-seen; reason != 15 {
			t.Errorf("reason %d, want 15", reason)
		}
	}
	launcher.Begin()
	if reason := rank.AwaitStop(); reason != 15 {
		t.Errorf("reason %d in the next generation, want 15", reason)
	}
}
