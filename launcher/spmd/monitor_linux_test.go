package spmd

import (
	"os"
	"testing"
	"time"

	"spmoe/collective/heap"
)

// A rank that has just begun, whose process nobody has looked at before, does not hang.
func TestFirstLook(t *testing.T) {
	file, err := heap.Create(heap.Whole(1), 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h, err := heap.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.SetState(0, heap.Running)
	var w processWatch
	for range 2 {
		if why := w.hangs(h, 0, os.Getpid(), time.Hour, time.Hour); why != "" {
			t.Errorf("it was said to hang: %s", why)
		}
	}
}
