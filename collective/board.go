package collective

// A board is the shared memory of one communicator, where its ranks publish their calls and their
// arrivals.
//
// Every rank writes only its own words, except the decision, so a rank that dies leaves nothing
// half written.

import (
	"sync/atomic"
	"unsafe"
)

// board has this layout in memory: the decision, one arrival per rank, and two slots per rank, each
// on its own cache lines.
type board struct {
	base  unsafe.Pointer
	ranks int
}

// arrival is the progress of a rank.
type arrival struct {
	round atomic.Uint64 // the last meeting that it has reached
}

const (
	lineBytes = 64
	slotBytes = 8 << 10
)

// boardBytes returns the size of a board.
func boardBytes(ranks int) int { return lineBytes*(1+ranks) + 2*ranks*slotBytes }

// decision returns the word with the decision on the newest meeting: see group.meet.
func (b board) decision() *atomic.Uint64 { return (*atomic.Uint64)(b.base) }

func (b board) arrival(rank int) *arrival {
	return (*arrival)(unsafe.Add(b.base, lineBytes*(1+rank)))
}

// slot returns the slot in which a rank publishes its collective number seq. A rank uses two slots
// in turns. It may publish the next call while a peer still reads this one, but not the call after
// that, which it reaches only after every peer has reached the next.
func (b board) slot(rank, seq int) *slot {
	return (*slot)(unsafe.Add(b.base, lineBytes*(1+b.ranks)+(2*rank+seq%2)*slotBytes))
}

// slot describes one rank's call. Fields that a kind does not use are zero.
type slot struct {
	kind Kind
	op   Op
	elem uint8 // reflect.Kind of the elements
	seq  int64 // number among the collectives of this communicator, from 1
	head fields

	errLen, payloadLen int32
	// an error in the arguments, which every rank returns instead of waiting
	err     [504]byte
	payload [payloadBytes]byte
}

// fields are the numbers of a call.
type fields struct {
	count      int64 // elements; the same on every rank
	width      int64 // bytes of an element of a window
	color, key int64 // split
	group      int64 // the lowest id that a new communicator may have
	child      int64 // offset of the new communicator's board

	// what the peers read; in an all-reduce and in a window, also what they write
	bufs [2]extent
}

// extent is a published buffer.
type extent struct {
	offset int64 // in the heap; 0 if ranks are goroutines
	bytes  int64
}

const payloadBytes = slotBytes - 1024

var _ = [1]struct{}{}[unsafe.Sizeof(slot{})/(slotBytes+1)]

// counts returns list number i of the call, with an entry per rank. It is empty if the call has no
// such list.
func (s *slot) counts(i, ranks int) []int64 {
	if int(s.payloadLen) < 8*ranks*(i+1) || 8*ranks*(i+1) > payloadBytes {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(&s.payload[8*ranks*i])), ranks)
}

func (s *slot) problem() string { return string(s.err[:s.errLen]) }
