package heap

// The failure of the world: the first to be declared, in words that every process can read.

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// failure is declared by setting one word. What belongs to it has been written before, to a report
// that is the writer's own: a process that dies on the way keeps nobody from declaring another.
type failure struct {
	declared atomic.Uint64 // a verdict; 0 if nothing has failed
	taken    atomic.Uint64 // reports
	reports  [7]report
}

func (f *failure) clear() {
	f.taken.Store(0)
	f.declared.Store(0)
}

// report is why a rank has failed.
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

// Launcher declares failures as this rank.
const Launcher = -1

// A verdict packs what is declared: rank + 1, 16 bits for the one who declares it + 1, and the
// number of the report, from 1.
func verdict(rank, by int, report uint64) uint64 {
	return uint64(rank+1) | uint64(by+1)<<16 | report<<32
}

// Fail declares that a rank has failed, and wakes all who wait. It reports false if a failure was
// declared before: the first counts. Of a long text, the beginning is kept. Checked by
// internal/model.
func (h *Heap) Fail(rank, by int, text string) bool {
	defer h.RingAll() // in any case: who declared a failure may have died before it rang
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

// Failed says whether a failure was declared.
func (h *Heap) Failed() bool { return h.header.failure.declared.Load() != 0 }

// Failure is the failure that was declared, if ok.
func (h *Heap) Failure() (declared Failure, ok bool) {
	f := &h.header.failure
	word := f.declared.Load()
	if word == 0 {
		return Failure{}, false
	}
	declared.Rank, declared.By = int(uint16(word))-1, int(uint16(word>>16))-1
	// A process that has gone wrong may have written anything: then it is unknown who failed, but
	// somebody did.
	if declared.Rank < 0 || declared.Rank >= h.part.World || declared.By >= h.part.World || word>>32 > uint64(len(f.reports)) {
		return Failure{Text: fmt.Sprintf("a rank wrote over the memory of others: the failure that was declared is %#x", word)}, true
	}
	declared.Text = "it failed together with so many others that its reason was not kept"
	if i := word >> 32; i > 0 {
		r := &f.reports[i-1]
		declared.Text = string(r.text[:min(max(int(r.length), 0), len(r.text))])
	}
	return declared, true
}
