package collective

// A Comm is one rank's end of a communicator. This file has the calls that move no data.

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/collective/heap"
)

// Comm is a communicator from the view of one rank. It belongs to the goroutine of that rank and is
// not safe for concurrent use. Two communicators of the same rank may be used at the same time from
// two goroutines.
type Comm struct {
	group *group
	rank  int
	seq   int    // collectives called so far
	round uint64 // meetings
	// one block of a reduction; in words, so that every element type is aligned
	scratch   []uint64
	staged    []byte // copy of a source buffer that is not in the heap
	table     []byte // of OpenBuffers: offset and length of each buffer
	recvStage []byte // receives messages for a destination buffer that is not in the heap
	calls     *callsOfHosts
	moved     *Messages      // of collectives between hosts
	pieces    *hostReduction // memory for reductions over hosts
	terms     [][]byte       // the buffers of this host's ranks in a reduction
	stats     Stats
	repeat    int64  // times that a dry run counts a call; 0: once
	peers     []peer // what the current call may use of each rank

	wait    waiter
	meeting meeting // the one that this rank waits for
	turns   *Turns  // nil: waiting passes no turn
}

func newComm(g *group, rank int) *Comm {
	c := &Comm{group: g, rank: rank, scratch: make([]uint64, blockBytes/8), peers: make([]peer, len(g.worldRanks))}
	c.moved, c.terms = c.NewMessages(KindBarrier), make([][]byte, len(g.locals()))
	return c
}

// Rank returns this rank's number in the communicator, 0 to Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int { return len(c.group.worldRanks) }

// Shared reports whether the ranks are processes. Of another process's memory, a
// rank can access only what comes from that process's Allocator.
func (c *Comm) Shared() bool { return c.group.world.heap.Shared() }

// Allocator returns the allocator of memory that other ranks can access in place. Collectives
// accept any memory; between processes, they copy what lies elsewhere. It is nil after [NewDry].
func (c *Comm) Allocator() memory.Allocator {
	if c.group.dry {
		return nil
	}
	return c.group.world.heap.Allocator(c.group.worldRanks[c.rank])
}

// Vault returns memory of this rank that survives its process.
func (c *Comm) Vault() heap.Vault { return c.group.world.heap.Vault(c.group.worldRanks[c.rank]) }

// Kept returns the newest step whose state the vaults of all ranks hold. ok is false if a vault
// holds none.
func (c *Comm) Kept() (step int64, ok bool) { return c.group.world.heap.Kept() }

// Progress returns the counter of this rank's work. The rank's computation increments it often,
// which shows that the rank is not hung.
func (c *Comm) Progress() *atomic.Uint64 {
	return c.group.world.heap.Progress(c.group.worldRanks[c.rank])
}

// SetStep sets the step that this rank has reached, for the errors of waiting ranks.
func (c *Comm) SetStep(step int) { c.group.world.heap.SetStep(c.group.worldRanks[c.rank], int64(step)) }

// Barrier returns when every rank of the communicator has called it.
func (c *Comm) Barrier() error {
	err := c.enter(call{kind: KindBarrier})
	c.retire(KindBarrier, 0)
	return err
}

// Split divides the communicator as MPI_Comm_split does. The ranks with the same color form a new
// communicator, ordered by key and, for equal keys, by their rank here. A rank with color < 0 takes
// part in the call and gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	defer c.retire(KindSplit, 0)
	if c.group.dry {
		return nil, errDry
	}
	next := &c.group.world.nextGroup
	if err := c.enter(call{kind: KindSplit, fields: fields{color: int64(color), key: int64(key), group: next.Load()}}); err != nil {
		return nil, err
	}
	id := c.childID(int64(color))
	members := c.membersOf(int64(color))
	founder := slices.IndexFunc(members, c.isLocal)
	if color >= 0 && members[founder] == c.rank {
		c.createBoard(members, c.child(color), id)
	}
	if err := c.sync(KindSplit); err != nil || color < 0 {
		return nil, err
	}
	g, err := c.attachBoard(members, members[founder], c.child(color), id)
	if err != nil {
		return nil, err
	}
	child := newComm(g, slices.Index(members, c.rank))
	child.turns = c.turns
	return child, nil
}

// child returns the name of a communicator that this call creates.
func (c *Comm) child(color int) string {
	return fmt.Sprintf("%s/split%d:%d", c.group.name, c.seq, color)
}

// membersOf lists the ranks that gave this color, in the order of their new ranks.
func (c *Comm) membersOf(color int64) []int {
	var members []int
	for r := range c.Size() {
		if c.slot(r).head.color == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(c.slot(a).head.key, c.slot(b).head.key) })
	return members
}

// childID returns the id of the communicator for a color. All ranks of this one compute the same
// id, and never reuse it.
func (c *Comm) childID(color int64) int {
	var colors []int64
	least := int64(0)
	for r := range c.Size() {
		head := c.slot(r).head
		least = max(least, head.group)
		if head.color >= 0 {
			colors = append(colors, head.color)
		}
	}
	slices.Sort(colors)
	colors = slices.Compact(colors)
	c.group.world.useIDs(least + int64(len(colors)))
	return int(least) + max(slices.Index(colors, color), 0)
}

// reserveIDs returns the first of n consecutive ids that no communicator of these ranks gets. It is
// collective.
func (c *Comm) reserveIDs(n int) (first int, err error) {
	next := []int64{c.group.world.nextGroup.Load()}
	if err := AllReduce(c, next, Max); err != nil {
		return 0, err
	}
	c.group.world.useIDs(next[0] + int64(n))
	return int(next[0]), nil
}

// useIDs makes the ids of later communicators begin with end or later.
func (w *World) useIDs(end int64) {
	next := &w.nextGroup
	for now := next.Load(); now < end && !next.CompareAndSwap(now, end); now = next.Load() {
	}
}

// isLocal reports whether a rank is on this host.
func (c *Comm) isLocal(r int) bool { return c.group.hostOf[r] == c.group.here }

// createBoard allocates the memory where the members on this host will meet, and publishes it to
// them.
func (c *Comm) createBoard(members []int, name string, id int) {
	bytes := boardBytes(len(members))
	if c.Shared() {
		memory := c.Allocator().Allocate(bytes)
		c.slot(c.rank).head.child, _ = c.group.world.heap.Offset(unsafe.Pointer(unsafe.SliceData(memory)))
		return
	}
	words := make([]uint64, bytes/8)
	c.group.local.children[c.rank] = newGroup(c.group.world, name, id, c.worldRanks(members), unsafe.Pointer(unsafe.SliceData(words)))
}

// attachBoard returns the group of members whose board the first member on this host has created.
func (c *Comm) attachBoard(members []int, first int, name string, id int) (*group, error) {
	g := c.group
	if !c.Shared() {
		return g.local.children[first], nil
	}
	child := extent{c.slot(first).head.child, int64(boardBytes(len(members)))}
	board, ok := g.world.heap.Within(g.worldRanks[first], child.offset, child.bytes)
	if !ok || child.offset%lineBytes != 0 {
		return nil, g.broken(c.seq, first, fmt.Errorf("the board of %s is at offset %d of the heap, where it does not fit", name, child.offset))
	}
	return newGroup(g.world, name, id, c.worldRanks(members), board), nil
}

func (c *Comm) worldRanks(members []int) []int {
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = c.group.worldRanks[r]
	}
	return world
}

// slot returns what rank r has published for the current call.
func (c *Comm) slot(r int) *slot { return c.group.board.slot(r, c.seq) }

// enter publishes this rank's call and waits until every rank has published its own. After success,
// the peers' buffers may be read until sync. After an error, no rank touches a buffer.
func (c *Comm) enter(k call) error {
	g := c.group
	if g.dry {
		return c.enterDry(k)
	}
	if f := g.failed(c.round + 1); f != nil {
		s := new(slot) // not the board's, where a peer may still read the call before the last
		k.publish(s, c.seq+1)
		return c.aborted(f, s)
	}
	c.seq++
	if g.local != nil {
		g.local.bufs[c.seq%2][c.rank] = k.ptr
	}
	k.publish(c.slot(c.rank), c.seq)
	if err := c.meet(k.kind, true); err != nil {
		return err
	}
	if g.spansHosts() {
		if err := c.tellHosts(k.kind); err != nil {
			return err
		}
	}
	if err := g.check(c.seq); err != nil {
		return err
	}
	return c.findBuffers(k)
}

// sync waits until every rank of this host has done its part of a call that all have entered. It
// fails only if a rank process dies, or the goroutine of a rank has ended.
func (c *Comm) sync(kind Kind) error { return c.meet(kind, c.Shared()) }

// retire ends a call: it drops the published reference and counts the call.
func (c *Comm) retire(kind Kind, bytes int) {
	if l := c.group.local; l != nil {
		l.bufs[c.seq%2][c.rank] = [2]unsafe.Pointer{}
		if traitsOf[kind].buffers {
			clear(c.peers)
		}
	}
	c.stats[kind].Calls++
	c.stats[kind].Bytes += int64(bytes) * max(c.repeat, 1)
}

// newCall describes a call that lets the peers read buf, in place or, if they cannot access it, as
// a copy.
func newCall[T Element](c *Comm, kind Kind, buf []T) call {
	k := call{kind: kind, elem: reflect.TypeFor[T]().Kind(), size: elemSize[T](), ptr: [2]unsafe.Pointer{unsafe.Pointer(unsafe.SliceData(buf))}}
	k.bufs[0].bytes = int64(sizeOf(buf))
	if !c.Shared() || len(buf) == 0 {
		return k
	}
	h := c.group.world.heap
	offset, ok := h.Offset(k.ptr[0])
	if !ok {
		staged := c.stage(sizeOf(buf))
		copy(staged, bytesOf(buf))
		offset, _ = h.Offset(unsafe.Pointer(unsafe.SliceData(staged)))
	}
	k.bufs[0].offset = offset
	return k
}

// stage returns memory in the heap for a copy of a buffer.
func (c *Comm) stage(bytes int) []byte {
	c.staged = c.grown(c.staged, bytes)
	return c.staged[:bytes]
}

// grown returns b, or larger memory of this rank that replaces it.
func (c *Comm) grown(b []byte, bytes int) []byte {
	if cap(b) >= bytes {
		return b
	}
	a := c.Allocator()
	if b != nil {
		a.Free(b)
	}
	b = a.Allocate(bytes)
	return b[:cap(b)]
}

// unstage copies what the peers have written to the copy of buf back to buf, if there is a copy.
func unstage[T Element](c *Comm, buf []T) {
	if !c.Shared() || len(buf) == 0 {
		return
	}
	if _, ok := c.group.world.heap.Offset(unsafe.Pointer(unsafe.SliceData(buf))); !ok {
		copy(bytesOf(buf), c.staged)
	}
}

// published returns n elements from lo of the buffer that rank j has published. reach has checked
// that they exist.
func published[T Element](c *Comm, j, lo, n int) []T {
	if n == 0 {
		return nil
	}
	return elements[T](c.peers[j].bufs[0], lo, n)
}

// elements returns n elements from lo of memory as a slice of T.
func elements[T Element](all []byte, lo, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(all))), len(all)/elemSize[T]())[lo:][:n]
}
