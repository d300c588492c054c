package heap

// The failure of the world: the first to be declared, in words that every process can read.

import (
	"sync/atomic"
	"unsafe"
)

// failure is written once: claimed by who sets claim, readable once ready is set.
type failure struct {
	claim, ready atomic.Uint32
	rank         int32
	length       int32
	text         [2048]byte
}

// Fail declares that a rank has failed, and wakes all who wait. It reports false if a failure was declared before: the first counts.
func (h *Heap) Fail(rank int, text string) bool {
	f := &h.header.failure
	if !f.claim.CompareAndSwap(0, 1) {
		return false
	}
	f.rank = int32(rank)
	f.length = int32(copy(f.text[:], text))
	f.ready.Store(1)
	h.RingAll()
	return true
}

// Failed says whether a failure was declared.
func (h *Heap) Failed() bool { return h.header.failure.ready.Load() != 0 }

// Failure is the failure that was declared, if ok.
func (h *Heap) Failure() (rank int, text string, ok bool) {
	f := &h.header.failure
	if f.ready.Load() == 0 {
		return 0, "", false
	}
	return int(f.rank), string(unsafe.Slice(&f.text[0], f.length)), true
}
