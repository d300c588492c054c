package collective

// The table of collectives: everything that the engine needs to know about a kind. Their work is in
// move.go, reduce.go or comm.go, and between hosts in movehosts.go or reducehosts.go.

import (
	"fmt"
	"math"
)

// Kind names a collective.
type Kind uint8

// The collectives.
const (
	KindBarrier Kind = iota
	KindSplit
	KindAllGather
	KindAllGatherV
	KindAllToAll
	KindAllToAllV
	KindAllReduce
	KindReduceScatter
	KindDispatch
	KindCombine
	KindBuffers
	KindMessage
	numKinds
)

// traits are the properties of a kind.
type traits struct {
	name    string
	buffers bool // its calls have buffers
	lists   int  // number of lists of counts and displacements that travel with a call
	alike   bool // all ranks pass the same first list

	// format describes a rank's call for error messages: 1 is its count, 2 its element type, 3 and
	// 4 are what it receives and sends, 5 is its operation, and 6 a window's bytes per element.
	format string

	// needs returns the number of elements that rank j's first buffer must have, if that is not the
	// count of the call.
	needs func(c *Comm, j int, k call) (int, error)
}

var traitsOf = [numKinds]traits{
	KindBarrier:   {name: "barrier"},
	KindSplit:     {name: "split"},
	KindAllGather: {name: "all-gather", buffers: true, format: " (%[1]d %[2]v per rank)"},
	KindAllGatherV: {
		name: "all-gather-v", buffers: true, lists: 1, alike: true,
		format: " (%[3]v %[2]v)",
		needs:  func(_ *Comm, j int, k call) (int, error) { return k.lists[listRecv][j], nil },
	},
	KindAllToAll: {
		name: "all-to-all", buffers: true,
		format: " (%[1]d %[2]v per rank)",
		needs:  func(c *Comm, _ int, k call) (int, error) { return int(k.count) * c.Size(), nil },
	},
	KindAllToAllV: {name: "all-to-all-v", buffers: true, lists: 3, format: " (%[2]v, sends %[4]v, receives %[3]v)", needs: needsOfAllToAllV},
	KindAllReduce: {name: "all-reduce", buffers: true, format: " (%[5]v of %[1]d %[2]v)"},
	KindReduceScatter: {
		name: "reduce-scatter", buffers: true, lists: 1, alike: true,
		format: " (%[5]v of %[3]v %[2]v)",
		needs:  func(_ *Comm, _ int, k call) (int, error) { return sum(k.lists[listRecv]), nil },
	},
	KindDispatch: {name: "dispatch", buffers: true, format: " (rows of %[1]d bytes, elements of %[6]d)"},
	KindCombine:  {name: "combine", buffers: true, format: " (rows of %[1]d bytes, elements of %[6]d)"},
	KindBuffers:  {name: "buffers", buffers: true},
	KindMessage:  {name: "message"},
}

// String returns the name of the collective, such as "all-reduce".
func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return traitsOf[k].name
}

// needsOfAllToAllV also records where this rank's part of the buffer begins.
func needsOfAllToAllV(c *Comm, j int, k call) (int, error) {
	from, need := c.slot(j).counts(listSendDispls, c.Size())[c.rank], k.lists[listRecv][j]
	if from < 0 || from > math.MaxInt64-int64(need) {
		return 0, fmt.Errorf("it sends %d elements from element %d", need, from)
	}
	c.peers[j].from = int(from)
	if need > 0 { // an empty part may be anywhere
		need += int(from)
	}
	return need, nil
}
