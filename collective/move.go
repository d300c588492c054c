package collective

// Collectives that move elements without changing them. Every rank copies what it needs from its
// peers' buffers.

import (
	"fmt"

	"spmoe/internal/fault"
)

// Element is a type whose values can be moved between ranks by copying memory.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~float32 | ~float64
}

// AllGather concatenates the src of all ranks, in rank order, into dst on every rank.
//
// All ranks pass the same len(src); len(dst) is Size times that. src may be this rank's own part of
// dst, and must not overlap it otherwise.
func AllGather[T Element](c *Comm, dst, src []T) error {
	n, shown := len(src), src
	small := sizeOf(src) <= payloadBytes
	if small {
		shown = nil
	}
	k := newCall(c, KindAllGather, shown)
	k.count = int64(n)
	if len(dst) != n*c.Size() {
		k.err = fmt.Errorf("dst has %d elements, want %d (%d ranks with %d each)", len(dst), n*c.Size(), c.Size(), n)
	} else if own := dst[c.rank*n:][:n]; overlap(dst, src) && !same(own, src) {
		k.err = fmt.Errorf("src overlaps dst: only dst[%d:%d], this rank's own part, may be src", c.rank*n, (c.rank+1)*n)
	}
	if small && k.err == nil {
		k.data = bytesOf(src)
		return c.allGatherSmall(k, bytesOf(dst))
	}
	return allGather(c, k, dst, src, func(j int) (lo, hi int) { return j * n, (j + 1) * n })
}

// allGather is the common part of AllGather and AllGatherV: part j of dst comes from rank j.
func allGather[T Element](c *Comm, k call, dst, src []T, part func(j int) (lo, hi int)) error {
	if c.group.spansHosts() {
		exposeDst(c, &k, dst)
	}
	if err := c.enter(k); err != nil {
		c.retire(k.kind, 0)
		return err
	}
	if c.group.dry {
		return c.countDry(k.kind, sizeOf(dst), c.allGatherSent(sizeOf(src)))
	}
	var err error
	if c.group.spansHosts() {
		err = allGatherHosts(c, dst, src, part)
	}
	for i := 0; i < c.Size() && err == nil; i++ {
		j := c.peer(i)
		if !c.isLocal(j) {
			continue
		}
		lo, hi := part(j)
		if to := dst[lo:hi]; !same(to, src) {
			spreadCopy(c, to, published[T](c, j, 0, hi-lo))
		}
		fault.Point(fault.InGather)
	}
	if err == nil {
		err = c.sync(k.kind)
	}
	c.retire(k.kind, sizeOf(dst))
	return err
}

// spreadCopy is copy, with the help of other threads if it is large.
func spreadCopy[T Element](c *Comm, to, from []T) {
	size := blockBytes / elemSize[T]()
	c.spread((len(to)+size-1)/size, sizeOf(to), func(lo, hi int) {
		hi = min(hi*size, len(to))
		copy(to[lo*size:hi], from[lo*size:hi])
	})
}

// allGatherSmall is AllGather of data that travels with the call: a single meeting.
func (c *Comm) allGatherSmall(k call, dst []byte) error {
	if err := c.enter(k); err != nil {
		c.retire(KindAllGather, 0)
		return err
	}
	for j := 0; j < c.Size() && !c.group.dry; j++ {
		n := len(k.data)
		copy(dst[j*n:][:n], c.slot(j).payload[:])
	}
	c.retire(KindAllGather, len(dst))
	return nil
}

// AllGatherV is [AllGather] with parts of different lengths: rank j passes counts[j] elements, and
// all ranks pass the same counts.
func AllGatherV[T Element](c *Comm, dst, src []T, counts []int) error {
	k := newCall(c, KindAllGatherV, src)
	k.lists[listRecv] = counts
	k.err = checkParts(c, counts, len(dst), len(src))
	if k.err == nil && overlap(dst, src) {
		if lo := sum(counts[:c.rank]); !same(dst[lo:][:len(src)], src) {
			k.err = fmt.Errorf("src overlaps dst: only dst[%d:%d], this rank's own part, may be src", lo, lo+len(src))
		}
	}
	return allGather(c, k, dst, src, func(j int) (lo, hi int) {
		lo = sum(counts[:j])
		return lo, lo + counts[j]
	})
}

// AllToAll sends the j-th of Size equal parts of src to rank j. Part j of dst comes from rank j.
//
// dst and src have the same length, a multiple of Size, on every rank, and do not overlap.
func AllToAll[T Element](c *Comm, dst, src []T) error {
	n := len(src) / c.Size()
	k := newCall(c, KindAllToAll, src)
	k.count = int64(n)
	switch {
	case len(src)%c.Size() != 0:
		k.err = fmt.Errorf("src has %d elements, which %d ranks cannot share equally: use AllToAllV", len(src), c.Size())
	case len(dst) != len(src):
		k.err = fmt.Errorf("dst has %d elements, src %d: they must be equal", len(dst), len(src))
	case overlap(dst, src):
		k.err = fmt.Errorf("dst overlaps src: use separate buffers")
	}
	if err := c.enter(k); err != nil {
		c.retire(KindAllToAll, 0)
		return err
	}
	if c.group.dry {
		return c.countDry(KindAllToAll, sizeOf(dst), c.allToAllSent(func(int) int { return n * elemSize[T]() }))
	}
	for i := range c.Size() {
		j := c.peer(i)
		if to := dst[j*n:][:n]; c.isLocal(j) {
			copy(to, published[T](c, j, c.rank*n, n))
		} else {
			c.moved.Recv(j, bytesOf(to))
			c.moved.Send(j, bytesOf(src[j*n:][:n]))
		}
	}
	err := c.finish(KindAllToAll)
	c.retire(KindAllToAll, sizeOf(dst))
	return err
}

// AllToAllV sends src[sendDispls[j]:][:sendCounts[j]] to rank j and receives
// dst[recvDispls[j]:][:recvCounts[j]] from it.
//
// Counts and displacements are in elements, one per rank. recvCounts[j] must equal what rank j has
// in its sendCounts for this rank. Parts of dst must not overlap each other, nor src. If hosts
// communicate by MPI, this is its MPI_Alltoallv.
func AllToAllV[T Element](c *Comm, dst []T, recvCounts, recvDispls []int, src []T, sendCounts, sendDispls []int) error {
	k := newCall(c, KindAllToAllV, src)
	k.lists = [3][]int{recvCounts, sendCounts, sendDispls}
	k.err = checkRanges(c, "send", len(src), sendCounts, sendDispls)
	if k.err == nil {
		k.err = checkRanges(c, "recv", len(dst), recvCounts, recvDispls)
	}
	switch r := c.rank; {
	case k.err != nil:
	case sendCounts[r] != recvCounts[r]:
		k.err = fmt.Errorf("sendCounts[%d] = %d, recvCounts[%d] = %d: what this rank sends itself is what it receives from itself",
			r, sendCounts[r], r, recvCounts[r])
	case overlap(dst, src):
		k.err = fmt.Errorf("dst overlaps src: use separate buffers")
	}
	if err := c.enter(k); err != nil {
		c.retire(KindAllToAllV, 0)
		return err
	}
	if c.group.dry {
		return c.countDry(KindAllToAllV, sum(recvCounts)*elemSize[T](), c.allToAllSent(func(j int) int { return sendCounts[j] * elemSize[T]() }))
	}
	if done, err := c.collect(bytesOf(dst), recvCounts, recvDispls, bytesOf(src), sendCounts, sendDispls, elemSize[T]()); done || err != nil {
		if err == nil {
			err = c.sync(KindAllToAllV)
		}
		c.retire(KindAllToAllV, sum(recvCounts)*elemSize[T]())
		return err
	}
	received := 0
	for i := range c.Size() {
		j := c.peer(i)
		n := recvCounts[j]
		if to := dst[recvDispls[j]:][:n]; c.isLocal(j) {
			copy(to, published[T](c, j, c.peers[j].from, n))
		} else {
			c.moved.Recv(j, bytesOf(to))
			c.moved.Send(j, bytesOf(src[sendDispls[j]:][:sendCounts[j]]))
		}
		received += n
	}
	err := c.finish(KindAllToAllV)
	c.retire(KindAllToAllV, received*elemSize[T]())
	return err
}

// finish completes the messages of the call and calls sync.
func (c *Comm) finish(kind Kind) error {
	if c.moved.Len() > 0 {
		c.moved.kind = kind
		if err := c.moved.Wait(); err != nil {
			return err
		}
	}
	return c.sync(kind)
}

// peer returns the i-th rank to visit: this rank first, then around the ring, so that ranks do not
// all read the same peer.
func (c *Comm) peer(i int) int { return (c.rank + i) % c.Size() }
