package heap

// The failure of the world: the first to be declared, in words that every process can read.

import (
	"strings"
	"sync/atomic"
)

// failure is declared by setting one word. What belongs to it has been written before, to a report that is the writer's own: a process
// that dies on the way keeps nobody from declaring another.
type failure struct {
	declared atomic.Uint64 // rank + 1, and in the upper half the number of its report, from 1; 0 if nothing has failed
	taken    atomic.Uint64 // reports
	reports  [7]report
}

// report is why a rank has failed.
type report struct {
	length int32
	text   [2044]byte
}

// Fail declares that a rank has failed, and wakes all who wait. It reports false if a failure was declared before: the first counts. Of
// a long text, the beginning is kept.
func (h *Heap) Fail(rank int, text string) bool {
	defer h.RingAll() // in any case: who declared a failure may have died before it rang
	f := &h.header.failure
	if h.Failed() {
		return false
	}
	word := uint64(rank + 1)
	if i := f.taken.Add(1); i <= uint64(len(f.reports)) {
		r := &f.reports[i-1]
		text = strings.ToValidUTF8(text[:min(len(text), len(r.text))], "")
		r.length = int32(copy(r.text[:], text))
		word |= i << 32
	}
	return f.declared.CompareAndSwap(0, word)
}

// Failed says whether a failure was declared.
func (h *Heap) Failed() bool { return h.header.failure.declared.Load() != 0 }

// Failure is the failure that was declared, if ok.
func (h *Heap) Failure() (rank int, text string, ok bool) {
	f := &h.header.failure
	word := f.declared.Load()
	if word == 0 {
		return 0, "", false
	}
	rank = int(uint32(word)) - 1
	if i := word >> 32; i > 0 {
		r := &f.reports[i-1]
		return rank, string(r.text[:r.length]), true
	}
	return rank, "it failed together with so many others that its reason was not kept", true
}
