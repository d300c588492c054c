package collective

// A Comm is one rank's end of a communicator; this file has the calls that move no data.

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Comm is a communicator as one rank sees it. It belongs to the goroutine of that rank: it is not safe for
// concurrent use, but two communicators of the same rank may be used at once from two goroutines.
type Comm struct {
	group   *group
	rank    int
	seq     int      // collectives called so far
	scratch []uint64 // one block of a reduction; words, so that every element type is aligned
	stats   Stats
}

func newComm(g *group, rank int) *Comm {
	return &Comm{group: g, rank: rank, scratch: make([]uint64, blockBytes/8)}
}

// Rank is this rank's number in the communicator, 0 to Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks in the communicator.
func (c *Comm) Size() int { return len(c.group.calls) }

// Barrier returns when every rank of the communicator has called it.
func (c *Comm) Barrier() error {
	err := c.enter(call{kind: KindBarrier})
	c.retire(KindBarrier, 0)
	return err
}

// Split divides the communicator as MPI_Comm_split does: the ranks that give the same color form a new communicator,
// ordered by key and, for equal keys, by their rank here. A rank with color < 0 takes part in the call and gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if err := c.enter(call{kind: KindSplit, color: color, key: key}); err != nil {
		c.retire(KindSplit, 0)
		return nil, err
	}
	calls := c.group.calls
	members := membersOf(calls, color)
	leads := color >= 0 && members[0] == c.rank
	if leads {
		world := make([]int, len(members))
		for i, r := range members {
			world[i] = c.group.worldRanks[r]
		}
		name := fmt.Sprintf("%s/split%d:%d", c.group.name, calls[c.rank].seq, color)
		calls[c.rank].child = newGroup(c.group.world, name, world)
	}
	c.sync(KindSplit)
	var sub *Comm
	if color >= 0 {
		sub = newComm(calls[members[0]].child, slices.Index(members, c.rank))
	}
	c.sync(KindSplit)
	c.retire(KindSplit, 0)
	return sub, nil
}

// membersOf lists the ranks that gave this color, in the order of their new ranks.
func membersOf(calls []call, color int) []int {
	var members []int
	for r := range calls {
		if calls[r].color == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(calls[a].key, calls[b].key) })
	return members
}

// enter publishes this rank's call and waits until every rank has published its own. Without an error, the peers'
// buffers may be read until sync; with one, nobody touches a buffer.
func (c *Comm) enter(k call) error {
	c.seq++
	k.seq = c.seq
	c.group.calls[c.rank] = k
	start := time.Now()
	err := c.group.open(c.rank)
	c.stats[k.kind].Wait += time.Since(start)
	return err
}

// sync waits until every rank has done its part of a call that all have entered.
func (c *Comm) sync(kind Kind) {
	start := time.Now()
	c.group.rejoin()
	c.stats[kind].Wait += time.Since(start)
}

// retire ends a call: it drops the references that the call published and counts it.
func (c *Comm) retire(kind Kind, bytes int) {
	c.group.calls[c.rank] = call{}
	c.stats[kind].Calls++
	c.stats[kind].Bytes += int64(bytes)
}
