package ep

// The work of one-sided calls: copying rows of this rank's tokens to and from the places of their
// choices in the peers' memory.

import (
	"fmt"
	"unsafe"

	"spmoe/internal/fault"
	"spmoe/mx"
	"spmoe/tensor"
)

// copyWork is the cost of moving an element, in operations of a matrix product that take as long.
const copyWork = 16

// peerRows holds rows [n, hidden] of each rank, at the ranks' own addresses.
type peerRows struct {
	bases  []unsafe.Pointer
	counts []int32 // of rows of each rank
	hidden int
	dtype  tensor.DType
}

// peerRows records in list number i where the rows of each rank begin, with p's width and type, for
// the ranks of this host. The places of rows follow from the counts that all ranks know. A buffer
// that is too small for them is an error.
func (s *OneSided) peerRows(h *Handle, i int, p peerRows, buffer func(rank int) []byte) (peerRows, error) {
	p.counts = h.perRank
	p.bases = resize(h.bases[i], len(h.perRank)+1) // the last one is for rows that have come back from other hosts
	h.bases[i] = p.bases
	for r, rows := range h.perRank {
		if !s.isLocal(r) {
			continue
		}
		b, need := buffer(r), int(rows)*p.hidden*p.dtype.Size()
		if len(b) < need {
			return p, fmt.Errorf("the call of rank %d is damaged: its buffer has %d bytes for %d rows that take %d", r, len(b), rows, need)
		}
		p.bases[r] = unsafe.Pointer(unsafe.SliceData(b))
	}
	return p, nil
}

// at panics if the row does not exist: its place has changed in memory since it was checked.
func (p peerRows) at(rank, row int32) unsafe.Pointer {
	if int(rank) < len(p.counts) && uint32(row) >= uint32(p.counts[rank]) {
		panic("ep: the places of rows are damaged")
	}
	return unsafe.Add(p.bases[rank], int(row)*p.hidden*p.dtype.Size())
}

func (p peerRows) bytes(rank, row int32) []byte {
	return unsafe.Slice((*byte)(p.at(rank, row)), p.hidden*p.dtype.Size())
}

func (p peerRows) f32(rank, row int32) []float32 {
	return unsafe.Slice((*float32)(p.at(rank, row)), p.hidden)
}

func (p peerRows) bf16(rank, row int32) []tensor.BFloat16 {
	return unsafe.Slice((*tensor.BFloat16)(p.at(rank, row)), p.hidden)
}

// transfer holds the rows of a call: here, one per token, and there, one per choice.
type transfer struct {
	h        *Handle
	owners   []int32 // of choices: ranks whose memory has their rows
	places   []int32 // there; -1: masked, or not part of this call
	here     tensor.Tensor
	scaled   tensor.Tensor // the scales of here, if it holds codes
	there, y peerRows
	scales   peerRows  // of the rows there, if they hold codes
	weights  []float32 // nil: all 1
	dweights []float32
}

// streamedBytes is the number of bytes that a rank must send for its rows to be stored past the
// caches. What fits in the caches until the expert reads it stays in them.
const streamedBytes = 8 << 20

// streams reports whether the rows of a call are stored past the caches.
func (t *transfer) streams() bool {
	return t.h.Sent*t.there.hidden*t.there.dtype.Size() > streamedBytes
}

// put copies each token's row to all of its places.
func put(_ *tensor.Exec, t transfer, lo, hi int) {
	out := newSender(&t, t.here, t.scaled)
	for token := lo; token < hi; token++ {
		t.eachChoice(token, func(_ int, rank, place int32) { out.store(token, rank, place) })
	}
	out.close()
}

// putQuantized is put for the MXFP8 wire: each row is quantized once, and stored from the cache.
func putQuantized(ex *tensor.Exec, t transfer, lo, hi int) {
	panel := mx.New(ex, wireCast.Format, mx.AlongRows, mostBatched, t.here.Dim(1))
	if lo == hi { // in a dry run, for the memory of the kernel
		n := min(mostBatched, t.here.Dim(0))
		mx.Quantize(ex, panel.RowSlice(0, n), t.here.Mat().RowSlice(0, n), wireCast.Mode)
		return
	}
	out := newSender(&t, panel.Codes, panel.Scales)
	for first := lo; first < hi; first += mostBatched {
		n := min(mostBatched, hi-first)
		mx.Quantize(ex, panel.RowSlice(0, n), t.here.Mat().RowSlice(first, first+n), wireCast.Mode)
		for i := range n {
			t.eachChoice(first+i, func(_ int, rank, place int32) { out.store(i, rank, place) })
		}
	}
	out.close()
}

// mostBatched is the number of rows that are quantized together: whole panels of the kernels.
const mostBatched = 32

// sender stores rows from some memory, with scales if they have any, at their places.
type sender struct {
	there, scales        peerRows
	rowBytes, scaleBytes int
	rows, scaleRows      []byte
	streams              bool
}

func newSender(t *transfer, rows, scales tensor.Tensor) sender {
	s := sender{there: t.there, scales: t.scales, rows: rows.Bytes(), rowBytes: rowBytes(rows), streams: t.streams()}
	if scales.Valid() {
		s.scaleRows, s.scaleBytes = scales.Bytes(), rowBytes(scales)
	}
	return s
}

// store copies row i to a place of a rank.
func (s *sender) store(i int, rank, place int32) {
	fault.Point(fault.InPut)
	s.move(s.there.bytes(rank, place), s.rows[i*s.rowBytes:][:s.rowBytes])
	if s.scaleBytes > 0 {
		s.move(s.scales.bytes(rank, place), s.scaleRows[i*s.scaleBytes:][:s.scaleBytes])
	}
	fault.Touch(fault.InMessage, s.there.bytes(rank, place))
}

func (s *sender) move(dst, src []byte) {
	if s.streams {
		tensor.CopyStreaming(dst, src)
	} else {
		copy(dst, src)
	}
}

// close makes the stored rows visible to ranks that meet this rank afterwards.
func (s *sender) close() {
	if s.streams {
		tensor.StreamingFence()
	}
}

// eachChoice calls f for each choice of a token that is not masked, in slot order.
func (t *transfer) eachChoice(token int, f func(i int, rank, place int32)) {
	slots := t.h.slots
	for i := token * slots; i < (token+1)*slots; i++ {
		if t.places[i] >= 0 {
			f(i, t.owners[i], t.places[i])
		}
	}
}

// sum sets each token's row to the weighted sum of the rows at its places, in FP32 and slot order,
// rounded once.
func sum(ex *tensor.Exec, t transfer, lo, hi int) {
	total := ex.New(tensor.FP32, 1, t.here.Dim(1))
	if lo == hi { // in a dry run
		return
	}
	row := total.F32()
	var turns [2]terms
	turns[lo%2].of(&t, lo)
	for token := lo; token < hi; token++ {
		now, next := &turns[token%2], &turns[(token+1)%2]
		next.of(&t, min(token+1, hi-1))
		if t.there.dtype == tensor.BF16 {
			ahead := now
			if next.n == now.n {
				ahead = next
			}
			tensor.SumRows(row, now.rows[:now.n], ahead.rows[:now.n], now.weights[:now.n])
		} else {
			clear(row)
			for i, from := range now.rows[:now.n] {
				tensor.AddScaled(row, now.weights[i], unsafe.Slice((*float32)(from), t.there.hidden))
			}
		}
		store(t.here, token, total)
		fault.Point(fault.InGet)
	}
}

// mostSlots is the maximum number of choices per token.
const mostSlots = 64

// terms are the terms of the sum of a token's row.
type terms struct {
	rows    [mostSlots]unsafe.Pointer
	weights [mostSlots]float32
	n       int
}

func (s *terms) of(t *transfer, token int) {
	s.n = 0
	t.eachChoice(token, func(i int, rank, place int32) {
		s.rows[s.n], s.weights[s.n] = t.there.at(rank, place), 1
		if t.weights != nil {
			s.weights[s.n] = t.weights[i]
		}
		s.n++
	})
}
