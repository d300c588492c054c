package ep

// What a layer stores about its exchange between Dispatch and the backward pass.

import (
	"fmt"
	"unsafe"

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

	Received int // rows received from all ranks, N
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

	perRank []int32 // rows that each rank receives; OneSided only

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
