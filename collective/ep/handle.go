package ep

// What a layer stores about its exchange between Dispatch and the backward pass.

import (
	"fmt"
	"unsafe"

	"github.com/zeebo/xxh3"

	"spmoe/tensor"
	"spmoe/tensor/alloc"
)

// Handle is the routing of one Dispatch, which the later calls for the same rows need. The zero
// Handle is ready for Dispatch. Reusing it in the next step reuses its memory. The exported fields
// are for reading.
type Handle struct {
	// Rows is the arena of the rows that outlive a call: those that Dispatch and CombineBackward
	// return, and those that Combine keeps. It may differ from call to call; nil means that of the
	// call's Exec.
	Rows *tensor.Arena

	// GroupEnds has, for every expert of this rank, the end of its group among the received rows. A
	// group begins where the previous one ends. Within a group, rows are ordered by source rank,
	// then token, then slot. If ranks hold consecutive pieces of a batch, an expert sees the same
	// rows in the same order for any number of ranks.
	GroupEnds []int32

	// Whole has, for every expert of this rank, the number of rows that the expert gets on all
	// ranks that hold a copy of it; nil if only this rank does. See [Exchange].
	Whole []int32

	// Before has, for every expert of this rank, how many of these rows precede those of this rank,
	// in the order of a single group of ranks; nil if Whole is nil.
	Before []int32

	// rows received from all ranks, N, including rows of zeros for Options.Alignment
	Received int
	Sent     int // rows sent to all ranks: choices that are not masked
	// choices of this rank dropped because of Options.Capacity, which count as masked
	Dropped    int
	SendCounts []int // rows sent to each rank
	RecvCounts []int // rows received from each rank

	tokens, slots int // the shape of topk

	// packed[t*slots+k] is the place of choice (t, k). For Standard it is among the rows this rank
	// sends, which are ordered by expert, token and slot. For OneSided it is among the rows of rank
	// owners[t*slots+k]. It is -1 for a masked choice.
	packed, owners []int32

	perRank []int32    // rows that each rank receives; OneSided only
	filling []rowRange // rows of zeros among those of this rank

	// blockRows[r*experts+e] is the number of rows that rank r sends to local expert e. Their order
	// on the wire is r, e.
	blockRows []int32

	weights []float32 // of Combine
	// of Combine: for Standard the returned rows, [Sent, H], in packed order; for OneSided this
	// rank's
	y tensor.Tensor

	routes routes // between hosts; OneSided only

	// where the ranks' rows begin, during a one-sided call: the rows stored or read, their scales,
	// and y
	bases [3][]unsafe.Pointer
}

// rowRange is rows [from, to).
type rowRange struct{ from, to int32 }

// Checksums returns checksums of what later calls read, except rows: of the routing, which Dispatch
// sets, and of the weights, which Combine sets.
func (h *Handle) Checksums() (routing, weights uint64) {
	sum := uint64(len(h.SendCounts))
	add := func(list []int32) { sum = sum*checksumPrime ^ xxh3.Hash(bytesOf(list)) }
	for _, list := range [...][]int32{h.GroupEnds, h.Whole, h.Before, h.packed, h.owners, h.perRank, h.blockRows, h.routes.near, h.routes.back, h.routes.backOwners} {
		add(list)
	}
	for i := range h.routes.to {
		add(h.routes.to[i].tokens)
		add(h.routes.to[i].choices)
	}
	for i := range h.routes.from {
		add(h.routes.from[i].owners)
		add(h.routes.from[i].places)
	}
	for _, n := range [...]int{h.Received, h.Sent, h.tokens, h.slots, h.routes.returned} {
		sum = sum*checksumPrime ^ uint64(n)
	}
	for i := range h.SendCounts {
		sum = sum*checksumPrime ^ uint64(h.SendCounts[i])<<32 ^ uint64(h.RecvCounts[i])
	}
	return sum*checksumPrime ^ xxh3.Hash(bytesOf(h.filling)), xxh3.Hash(bytesOf(h.weights))
}

const checksumPrime = 1<<40 + 1<<8 + 0xb3 // FNV's

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// Mask masks all choices, if the routing has changed by itself. Later calls then move no rows of
// this rank, and no expert has any. What they compute has no meaning.
func (h *Handle) Mask() {
	for _, places := range [...][]int32{h.packed, h.routes.near, h.routes.back} {
		for i := range places {
			places[i] = -1
		}
	}
	clear(h.GroupEnds)
}

// arena returns the arena of the rows that outlive a call.
func (h *Handle) arena(ex *tensor.Exec) *tensor.Arena {
	if h.Rows != nil {
		return h.Rows
	}
	return &ex.Arena
}

// dispatched returns an error unless the handle has been through Dispatch.
func (h *Handle) dispatched() error {
	if h == nil || h.GroupEnds == nil {
		return fmt.Errorf("the handle has no routing: call Dispatch with it first")
	}
	return nil
}

// resize returns s with n elements of arbitrary content, in the same memory if it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return alloc.Make[T](n)
	}
	return s[:n]
}
