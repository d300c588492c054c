package collective

// A board is the shared memory of one communicator, where its ranks show what they call and how far
// they are.
//
// Every rank writes its own words only, except the decision, so that a rank that dies leaves
// nothing half done.

import (
	"sync/atomic"
	"unsafe"
)

// board is laid out in memory as: the decision, one arrival a rank, and two slots a rank, each on
// cache lines of its own.
type board struct {
	base  unsafe.Pointer
	ranks int
}

// arrival is how far a rank is.
type arrival struct {
	round atomic.Uint64   // the meeting it has come to
	at    [2]atomic.Int64 // when, in Unix nanoseconds: by the parity of round, since peers may still look at the meeting before
}

const (
	lineBytes = 64
	slotBytes = 8 << 10
)

// boardBytes is the size of a board.
func boardBytes(ranks int) int { return lineBytes*(1+ranks) + 2*ranks*slotBytes }

// decision is what has been decided about the newest meeting: see group.meet.
func (b board) decision() *atomic.Uint64 { return (*atomic.Uint64)(b.base) }

func (b board) arrival(rank int) *arrival {
	return (*arrival)(unsafe.Add(b.base, lineBytes*(1+rank)))
}

// slot is where a rank publishes its collective number seq: in turns one of two, since it may
// publish the next call while a peer still reads this one, but not the one after that, which it
// does not get to before every peer has come to the next.
func (b board) slot(rank, seq int) *slot {
	return (*slot)(unsafe.Add(b.base, lineBytes*(1+b.ranks)+(2*rank+seq%2)*slotBytes))
}

// slot describes one rank's call. Fields that a kind does not use are zero.
type slot struct {
	kind Kind
	op   Op
	elem uint8 // reflect.Kind of the elements
	seq  int64 // position among the collectives of this communicator, from 1
	head fields

	errLen, payloadLen int32
	err                [504]byte // the arguments are wrong: said on every rank instead of leaving the peers to wait
	payload            [payloadBytes]byte
}

// fields are the numbers that calls have.
type fields struct {
	count      int64 // elements; the same on every rank
	root       int64
	color, key int64 // split
	group      int64 // the least id that a new communicator may have
	child      int64 // offset of the new communicator's board

	bufs [2]extent // what the peers read; in an all-reduce, and in a window, also what they write
}

// extent is a buffer that a rank has put up.
type extent struct {
	offset int64 // in the heap; 0 if ranks are goroutines
	bytes  int64
}

const payloadBytes = slotBytes - 1024

var _ = [1]struct{}{}[unsafe.Sizeof(slot{})/(slotBytes+1)]

// counts is list number i of the call, with an entry for each rank; empty if the call has none.
func (s *slot) counts(i, ranks int) []int64 {
	if int(s.payloadLen) < 8*ranks*(i+1) || 8*ranks*(i+1) > payloadBytes {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(&s.payload[8*ranks*i])), ranks)
}

func (s *slot) problem() string { return string(s.err[:s.errLen]) }
