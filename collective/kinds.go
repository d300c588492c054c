package collective

// The table of collectives: everything that the engine needs to know about a kind. Their work is in
// move.go, reduce.go or comm.go, and between hosts in movehosts.go or reducehosts.go.

import (
	"fmt"
	"math"
	"reflect"
)

// Kind names a collective.
type Kind uint8

// The collectives.
const (
	KindBarrier Kind = iota
	KindSplit
	KindBcast
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

	// describe describes a rank's call for error messages, given its element type and its counts.
	describe func(s *slot, elem reflect.Kind, counts func(list int) []int64) string

	// needs returns the number of elements that rank j's first buffer must have, if that is not the
	// count of the call.
	needs func(c *Comm, j int, k call) (int, error)
}

var traitsOf = [numKinds]traits{
	KindBarrier:   {name: "barrier", describe: describeNothing},
	KindSplit:     {name: "split", describe: describeNothing},
	KindBcast:     {name: "bcast", buffers: true, describe: describeBcast},
	KindAllGather: {name: "all-gather", buffers: true, describe: describeEqual},
	KindAllGatherV: {
		name: "all-gather-v", buffers: true, lists: 1, alike: true,
		describe: describeAllGatherV,
		needs:    func(_ *Comm, j int, k call) (int, error) { return k.lists[listRecv][j], nil },
	},
	KindAllToAll: {
		name: "all-to-all", buffers: true,
		describe: describeEqual,
		needs:    func(c *Comm, _ int, k call) (int, error) { return int(k.count) * c.Size(), nil },
	},
	KindAllToAllV: {name: "all-to-all-v", buffers: true, lists: 3, describe: describeAllToAllV, needs: needsOfAllToAllV},
	KindAllReduce: {name: "all-reduce", buffers: true, describe: describeAllReduce},
	KindReduceScatter: {
		name: "reduce-scatter", buffers: true, lists: 1, alike: true,
		describe: describeReduceScatter,
		needs:    func(_ *Comm, _ int, k call) (int, error) { return sum(k.lists[listRecv]), nil },
	},
	KindDispatch: {name: "dispatch", buffers: true, describe: describeWindow},
	KindCombine:  {name: "combine", buffers: true, describe: describeWindow},
	KindBuffers:  {name: "buffers", buffers: true, describe: describeNothing},
	KindMessage:  {name: "message", describe: describeNothing},
}

// String returns the name of the collective, such as "all-reduce".
func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return traitsOf[k].name
}

func describeNothing(*slot, reflect.Kind, func(int) []int64) string { return "" }

func describeBcast(s *slot, elem reflect.Kind, _ func(int) []int64) string {
	return fmt.Sprintf(" (%d %v from root %d)", s.head.count, elem, s.head.root)
}

func describeEqual(s *slot, elem reflect.Kind, _ func(int) []int64) string {
	return fmt.Sprintf(" (%d %v per rank)", s.head.count, elem)
}

func describeAllGatherV(_ *slot, elem reflect.Kind, counts func(int) []int64) string {
	return fmt.Sprintf(" (%v %v)", counts(listRecv), elem)
}

func describeAllToAllV(_ *slot, elem reflect.Kind, counts func(int) []int64) string {
	return fmt.Sprintf(" (%v, sends %v, receives %v)", elem, counts(listSend), counts(listRecv))
}

func describeAllReduce(s *slot, elem reflect.Kind, _ func(int) []int64) string {
	return fmt.Sprintf(" (%v of %d %v)", s.op, s.head.count, elem)
}

func describeReduceScatter(s *slot, elem reflect.Kind, counts func(int) []int64) string {
	return fmt.Sprintf(" (%v of %v %v)", s.op, counts(listRecv), elem)
}

func describeWindow(s *slot, _ reflect.Kind, _ func(int) []int64) string {
	return fmt.Sprintf(" (rows of %d bytes, elements of %d)", s.head.count, s.head.root)
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
