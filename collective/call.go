package collective

// What a rank publishes when it enters a collective, and the check that all ranks' calls belong together.

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// call describes one rank's call. Fields that a kind does not use are zero.
type call struct {
	kind  Kind
	op    Op
	seq   int          // position among the collectives of this communicator, from 1
	elem  reflect.Type // element type
	count int          // elements; the same on every rank
	root  int

	buf        unsafe.Pointer // what the peers read; in an all-reduce also what they write
	sendCounts []int          // all-to-all-v
	sendDispls []int
	recvCounts []int // all-to-all-v: from each rank; all-gather-v and reduce-scatter: of each rank, the same on all

	color, key int // split
	child      *group

	err error // the arguments are wrong: say so on every rank instead of leaving the peers to wait
}

// String says what was called, for error messages.
func (k *call) String() string {
	switch k.kind {
	case KindBarrier, KindSplit:
		return fmt.Sprintf("%v #%d", k.kind, k.seq)
	case KindBcast:
		return fmt.Sprintf("%v #%d (%d %v from root %d)", k.kind, k.seq, k.count, k.elem, k.root)
	case KindAllReduce:
		return fmt.Sprintf("%v #%d (%v of %d %v)", k.kind, k.seq, k.op, k.count, k.elem)
	case KindReduceScatter:
		return fmt.Sprintf("%v #%d (%v of %v %v)", k.kind, k.seq, k.op, k.recvCounts, k.elem)
	case KindAllToAllV:
		return fmt.Sprintf("%v #%d (%v, sends %v, receives %v)", k.kind, k.seq, k.elem, k.sendCounts, k.recvCounts)
	case KindAllGather:
		if k.recvCounts != nil {
			return fmt.Sprintf("%v #%d (%v %v)", k.kind, k.seq, k.recvCounts, k.elem)
		}
	}
	return fmt.Sprintf("%v #%d (%d %v a rank)", k.kind, k.seq, k.count, k.elem)
}

// agrees reports whether two ranks may meet in these calls, counts between pairs aside.
func (k *call) agrees(o *call) bool {
	return k.kind == o.kind && k.op == o.op && k.elem == o.elem && k.count == o.count && k.root == o.root &&
		(k.kind == KindAllToAllV || slices.Equal(k.recvCounts, o.recvCounts))
}

// check looks at the calls of all ranks, which have all arrived, and returns the first thing wrong.
func (g *group) check() error {
	for r := range g.calls {
		if k := &g.calls[r]; k.err != nil {
			return &ArgumentError{Comm: g.name, Rank: r, Call: fmt.Sprintf("%v #%d", k.kind, k.seq), Err: k.err}
		}
	}
	first := &g.calls[0]
	for r := range g.calls[1:] {
		if !first.agrees(&g.calls[r+1]) {
			return g.mismatch(0, r+1)
		}
	}
	if first.kind != KindAllToAllV {
		return nil
	}
	for to := range g.calls {
		for from := range g.calls {
			if g.calls[from].sendCounts[to] != g.calls[to].recvCounts[from] {
				return g.mismatch(from, to)
			}
		}
	}
	return nil
}

func (g *group) mismatch(a, b int) error {
	return &MismatchError{Comm: g.name, Ranks: [2]int{a, b}, Calls: [2]string{g.calls[a].String(), g.calls[b].String()}}
}

func (g *group) aborted(f *failure, waiting int) error {
	return &AbortError{Rank: f.rank, Err: f.err, Comm: g.name, Waiting: g.calls[waiting].String()}
}
