package heap

// The failure of the world: the first one that is declared, in a form that every process can read.

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// failure is declared by setting one word. The details have been written before, to a report that
// belongs to the writer. A process that dies on the way does not keep others from declaring a
// failure.
type failure struct {
	declared atomic.Uint64 // a verdict; 0: no failure
	taken    atomic.Uint64 // reports in use
	reports  [7]report
}

func (f *failure) clear() {
	f.taken.Store(0)
	f.declared.Store(0)
}

// report says why a rank has failed.
type report struct {
	length int32
	text   [2044]byte
}

// Failure says which rank has failed.
type Failure struct {
	Rank int
	By   int // the rank that declared it, or Launcher
	Text string
}

// Launcher is the rank number of the launcher in declarations.
const Launcher = -1

// A verdict packs a declaration: rank + 1, 16 bits for the declaring rank + 1, and the number of
// the report, from 1.
func verdict(rank, by int, report uint64) uint64 {
	return uint64(rank+1) | uint64(by+1)<<16 | report<<32
}

// Fail declares that a rank has failed, and wakes all waiters. It reports false if a failure was
// declared before: the first one counts. It truncates a long text.
func (h *Heap) Fail(rank, by int, text string) bool {
	defer h.RingAll() // in any case: a process that declared a failure may have died before it rang
	f := &h.header.failure
	if h.Failed() {
		return false
	}
	i := f.taken.Add(1)
	if i <= uint64(len(f.reports)) {
		r := &f.reports[i-1]
		text = strings.ToValidUTF8(text[:min(len(text), len(r.text))], "")
		r.length = int32(copy(r.text[:], text))
	} else {
		i = 0
	}
	return f.declared.CompareAndSwap(0, verdict(rank, by, i))
}

// Failed reports whether a failure was declared.
func (h *Heap) Failed() bool { return h.header.failure.declared.Load() != 0 }

// Failure returns the declared failure, if ok.
func (h *Heap) Failure() (declared Failure, ok bool) {
	f := &h.header.failure
	word := f.declared.Load()
	if word == 0 {
		return Failure{}, false
	}
	declared.Rank, declared.By = int(uint16(word))-1, int(uint16(word>>16))-1
	// A faulty process may have written anything. Then there is a failure of an unknown rank.
	if declared.Rank < 0 || declared.Rank >= h.part.World || declared.By >= h.part.World || word>>32 > uint64(len(f.reports)) {
		return Failure{Text: fmt.Sprintf("a rank wrote over the memory of others: the failure that was declared is %#x", word)}, true
	}
	declared.Text = "too many ranks failed at once to record its reason"
	if i := word >> 32; i > 0 {
		r := &f.reports[i-1]
		declared.Text = string(r.text[:min(max(int(r.length), 0), len(r.text))])
	}
	return declared, true
}
