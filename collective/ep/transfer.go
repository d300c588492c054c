package ep

// The work of one-sided calls: rows of this rank's tokens, to and from the places of their choices in the peers' memory.

import (
	"unsafe"

	"spmoe/tensor"
)

// copyWork is the work of moving an element, in operations of a matrix product that would take as long.
const copyWork = 16

// peerRows is rows [n, hidden] of each rank, at the ranks' own addresses.
type peerRows struct {
	bases  []unsafe.Pointer
	hidden int
	dtype  tensor.DType
}

// rowsOf notes where the rows of each rank begin that lie in the first buffer of a window; they are of the type and width of like.
func (s *OneSided) rowsOf(h *Handle, begin func(rank int) unsafe.Pointer, like tensor.Tensor) peerRows {
	h.bases[0] = addresses(h.bases[0], s.layout.Ranks, begin)
	return peerRows{h.bases[0], like.Dim(1), like.DType()}
}

// seconds is rowsOf for the second buffer.
func (s *OneSided) seconds(h *Handle, begin func(rank int) unsafe.Pointer, like tensor.Tensor) peerRows {
	h.bases[1] = addresses(h.bases[1], s.layout.Ranks, begin)
	return peerRows{h.bases[1], like.Dim(1), like.DType()}
}

func addresses(list []unsafe.Pointer, ranks int, begin func(rank int) unsafe.Pointer) []unsafe.Pointer {
	list = resize(list, ranks)
	for r := range list {
		list[r] = begin(r)
	}
	return list
}

func (p peerRows) at(rank, row int32) unsafe.Pointer {
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

// transfer is a call's rows: here, one for each token, and there, one for each choice.
type transfer struct {
	h        *Handle
	here     tensor.Tensor
	there, y peerRows
	weights  []float32 // nil: 1
	dweights []float32
}

// streamedBytes is how much a rank must send for its rows to be stored past the caches: what they would hold until the expert reads it
// is better left in them.
const streamedBytes = 8 << 20

// streams says whether the rows of a call are stored past the caches.
func (t transfer) streams() bool { return t.h.Sent*t.there.hidden*t.there.dtype.Size() > streamedBytes }

// put copies each token's row to all of its places.
func put(_ *tensor.Exec, t transfer, lo, hi int) {
	n, streams := rowBytes(t.here), t.streams()
	for token := lo; token < hi; token++ {
		row := t.here.Bytes()[token*n:][:n]
		t.eachChoice(token, func(i int, rank, place int32) {
			if streams {
				tensor.CopyStreaming(t.there.bytes(rank, place), row)
			} else {
				copy(t.there.bytes(rank, place), row)
			}
		})
	}
	if streams {
		tensor.StreamingFence()
	}
}

// eachChoice calls f for the choices of a token that are not masked, in slot order.
func (t transfer) eachChoice(token int, f func(i int, rank, place int32)) {
	h := t.h
	for i := token * h.slots; i < (token+1)*h.slots; i++ {
		if h.packed[i] >= 0 {
			f(i, h.owners[i], h.packed[i])
		}
	}
}

// sum sets each token's row to the weighted sum of the rows at its places, in FP32 and slot order, rounded once.
func sum(ex *tensor.Exec, t transfer, lo, hi int) {
	total := ex.New(tensor.FP32, 1, t.here.Dim(1))
	var turns [2]terms
	turns[lo%2].of(t, lo)
	for token := lo; token < hi; token++ {
		now, next := &turns[token%2], &turns[(token+1)%2]
		next.of(t, min(token+1, hi-1))
		if t.there.dtype == tensor.BF16 {
			ahead := now
			if next.n == now.n {
				ahead = next
			}
			tensor.SumRows(total.F32(), now.rows[:now.n], ahead.rows[:now.n], now.weights[:now.n])
		} else {
			total.Zero()
			for i, row := range now.rows[:now.n] {
				tensor.AddScaled(total.F32(), now.weights[i], unsafe.Slice((*float32)(row), t.there.hidden))
			}
		}
		store(ex, t.here, token, total)
	}
}

// mostSlots is how many choices a token can have.
const mostSlots = 64

// terms are what a token's row is the sum of.
type terms struct {
	rows    [mostSlots]unsafe.Pointer
	weights [mostSlots]float32
	n       int
}

func (s *terms) of(t transfer, token int) {
	s.n = 0
	t.eachChoice(token, func(i int, rank, place int32) {
		s.rows[s.n], s.weights[s.n] = t.there.at(rank, place), 1
		if t.weights != nil {
			s.weights[s.n] = t.weights[i]
		}
		s.n++
	})
}

// putScaled sets the rows at each token's places to its row times their weights, and the gradients of the weights.
func putScaled(ex *tensor.Exec, t transfer, lo, hi int) {
	wide, scratch := ex.New(tensor.FP32, 1, t.here.Dim(1)), ex.New(tensor.FP32, 1, t.here.Dim(1))
	scaled, streams := ex.New(tensor.BF16, 1, t.here.Dim(1)), t.streams()
	clear(t.dweights[lo*t.h.slots : hi*t.h.slots])
	for token := lo; token < hi; token++ {
		d := load(ex, wide, t.here, token)
		t.eachChoice(token, func(i int, rank, place int32) {
			w := t.weights[i]
			if t.there.dtype == tensor.BF16 {
				tensor.Widen(scratch.F32(), t.y.bf16(rank, place))
				t.dweights[i] = tensor.Dot(d, scratch.F32())
				tensor.ScaleBF16(scaled.BF16(), w, d)
				if streams {
					tensor.CopyStreaming(t.there.bytes(rank, place), scaled.Bytes())
				} else {
					copy(t.there.bytes(rank, place), scaled.Bytes())
				}
			} else {
				t.dweights[i] = tensor.Dot(d, t.y.f32(rank, place))
				tensor.Scale(t.there.f32(rank, place), w, d)
			}
		})
	}
	if streams {
		tensor.StreamingFence()
	}
}
