package ep

// What one layer remembers of its exchange between Dispatch and the backward pass.

import (
	"fmt"
	"unsafe"

	"spmoe/tensor"
)

// Handle is the routing of one Dispatch, which the later calls for the same rows need. The zero
// Handle is ready for Dispatch; using it again in the next step reuses its memory. The exported
// fields are for reading.
type Handle struct {
	// Rows is the arena of what outlives a call: the rows that Dispatch and CombineBackward return,
	// and those that Combine keeps. It may differ from call to call; nil is that of the call's
	// Exec.
	Rows *tensor.Arena

	// GroupEnds has, for every expert of this rank, the end of its group among the rows received; a
	// group begins where the one before it ends. Within a group, rows are ordered by source rank,
	// then token, then slot: where ranks hold consecutive pieces of a batch, an expert sees the
	// same rows in the same order whatever the number of ranks.
	GroupEnds []int32

	Received   int   // rows received from all ranks, N, with those of zeros for Options.Alignment
	Sent       int   // rows sent to all ranks: choices that are not masked
	Dropped    int   // choices of this rank that had no room within Options.Capacity, and count as masked
	SendCounts []int // rows sent to each rank
	RecvCounts []int // rows received from each rank

	tokens, slots int // the shape of topk

	// packed[t*slots+k] is the place of choice (t, k): for Standard among the rows this rank sends,
	// which are ordered by expert, token and slot; for OneSided among the rows of rank
	// owners[t*slots+k]. -1 for a masked choice.
	packed, owners []int32

	perRank []int32 // rows that each rank receives; of OneSided
	filling []span  // rows of zeros among them, on this rank

	// blockRows[r*experts+e] is how many rows rank r sends to local expert e; their order on the
	// wire is r, e.
	blockRows []int32

	weights []float32     // of Combine
	y       tensor.Tensor // of Combine: for Standard the rows it got back, [Sent, H], in packed order; for OneSided this rank's

	passages passages // between hosts; of OneSided

	bases [3][]unsafe.Pointer // where the ranks' rows begin, during a one-sided call: those stored or read, their scales, and y
}

// span is rows [from, to).
type span struct{ from, to int32 }

// arena is where the rows of a call lie that outlive it.
func (h *Handle) arena(ex *tensor.Exec) *tensor.Arena {
	if h.Rows != nil {
		return h.Rows
	}
	return &ex.Arena
}

// dispatched checks that the handle has been through Dispatch.
func (h *Handle) dispatched() error {
	if h == nil || h.GroupEnds == nil {
		return fmt.Errorf("the handle has no routing: call Dispatch with it first")
	}
	return nil
}

// resize returns s with n elements of any value, in the same memory if it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
