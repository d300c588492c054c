package collective

// What a rank publishes when it enters a collective, and the check that the calls of all ranks
// match.

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// call is one rank's call before it is published.
type call struct {
	kind Kind
	op   Op
	elem reflect.Kind
	fields
	lists [3][]int          // counts and displacements, depending on the kind
	data  []byte            // small enough to travel with the call
	size  int               // of an element in bytes; 0 if the call has no elements
	ptr   [2]unsafe.Pointer // the buffers, for ranks that are goroutines
	err   error             // an error in the arguments
}

// The lists of calls.
const (
	listRecv = iota // counts from each rank or, in all-gather-v and reduce-scatter, of each rank
	listSend
	listSendDispls
)

// exposeDst publishes the memory that receives this rank's messages for dst, so that the ranks of
// this host can read them. It is dst itself or, if dst is not in the heap, recvStage.
func exposeDst[T Element](c *Comm, k *call, dst []T) {
	k.ptr[1], k.bufs[1].bytes = unsafe.Pointer(unsafe.SliceData(dst)), int64(sizeOf(dst))
	if !c.Shared() || len(dst) == 0 {
		return
	}
	h := c.group.world.heap
	offset, ok := h.Offset(k.ptr[1])
	if !ok {
		c.recvStage = c.grown(c.recvStage, sizeOf(dst))
		offset, _ = h.Offset(unsafe.Pointer(unsafe.SliceData(c.recvStage)))
	}
	k.bufs[1].offset = offset
}

// payload returns the number of bytes of data and lists that travel with the call.
func (k *call) payload() int {
	bytes := len(k.data)
	for _, list := range k.lists {
		bytes += 8 * len(list)
	}
	return bytes
}

// publish writes the call to its slot.
func (k *call) publish(s *slot, seq int) {
	s.kind, s.op, s.elem, s.seq, s.head = k.kind, k.op, uint8(k.elem), int64(seq), k.fields
	s.errLen, s.payloadLen = 0, 0
	if k.err != nil {
		s.errLen = int32(copy(s.err[:], k.err.Error()))
		return
	}
	if k.data != nil {
		s.payloadLen = int32(copy(s.payload[:], k.data))
		return
	}
	for i, list := range k.lists {
		if list == nil {
			return
		}
		s.payloadLen = int32(8 * len(list) * (i + 1))
		counts := s.counts(i, len(list))
		for j, x := range list {
			counts[j] = int64(x)
		}
	}
}

// describe describes the call for error messages.
func (s *slot) describe(ranks int) string {
	text := fmt.Sprintf("%v #%d", s.kind, s.seq)
	if format := traitsOf[s.kind].format; format != "" {
		text += fmt.Sprintf(format, s.head.count, reflect.Kind(s.elem), s.counts(listRecv, ranks), s.counts(listSend, ranks), s.op, s.head.width)
	}
	return text
}

// agrees reports whether two ranks may meet in these calls. It does not compare counts between
// pairs.
func (s *slot) agrees(o *slot, ranks int) bool {
	if s.kind != o.kind || s.op != o.op || s.elem != o.elem || s.head.count != o.head.count || s.head.width != o.head.width {
		return false
	}
	return !traitsOf[s.kind].alike || slices.Equal(s.counts(listRecv, ranks), o.counts(listRecv, ranks))
}

// check checks the calls of all ranks after all have arrived. It returns the first error, which is
// the same on every rank.
func (g *group) check(seq int) error {
	n := len(g.worldRanks)
	at := func(r int) *slot { return g.board.slot(r, seq) }
	for r := range n {
		s := at(r)
		if err := s.sound(seq, n); err != nil {
			return g.broken(seq, r, err)
		}
		if s.errLen > 0 {
			return &ArgumentError{Comm: g.name, Rank: r, Call: fmt.Sprintf("%v #%d", s.kind, s.seq), Err: errors.New(s.problem())}
		}
	}
	for r := 1; r < n; r++ {
		if !at(0).agrees(at(r), n) {
			return g.mismatch(seq, 0, r)
		}
	}
	if at(0).kind != KindAllToAllV {
		return nil
	}
	for to := range n {
		received := at(to).counts(listRecv, n)
		for from := range n {
			if at(from).counts(listSend, n)[to] != received[from] {
				return g.mismatch(seq, from, to)
			}
		}
	}
	return nil
}

func (g *group) mismatch(seq, a, b int) error {
	says := func(r int) string { return g.board.slot(r, seq).describe(len(g.worldRanks)) }
	return &MismatchError{Comm: g.name, Ranks: [2]int{a, b}, Calls: [2]string{says(a), says(b)}}
}
