// Package heaptest helps tests of programs whose ranks share a heap.
package heaptest

import (
	"os"

	"spmoe/collective/heap"
)

// Park makes ranks park as soon as they wait, also those of programs that are started from now on.
// Tests share the processors and their steps are short: a rank that polls takes time from those
// that it waits for. An environment that has [heap.ParkVar], if only empty, stays as it is. Call
// Park in TestMain.
func Park() {
	if _, given := os.LookupEnv(heap.ParkVar); !given {
		os.Setenv(heap.ParkVar, "1")
	}
}
