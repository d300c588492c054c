//go:build !linux

package heap

import (
	"strings"
	"testing"
)

// Except on Linux, a heap for processes is an error that names the alternative. A heap for
// goroutines works.
func TestProcessesNeedLinux(t *testing.T) {
	_, created := Create(Whole(2), 0, 0, 0)
	_, opened := Open(nil)
	for name, err := range map[string]error{"Create": created, "Open": opened} {
		if err == nil || !strings.Contains(err.Error(), "use goroutines") {
			t.Errorf("%s: %v, want the advice to use goroutines", name, err)
		}
	}
	if New(Whole(2), 0).Shared() {
		t.Error("goroutine ranks share no memory of processes")
	}
}
