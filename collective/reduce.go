package collective

// Collectives that combine the ranks' elements. Each rank reduces its own part of the range, block
// by block, reading its peers' buffers directly. The order is always the same, so the result has
// the same bits on every rank and in every run.

import (
	"fmt"
	"unsafe"

	"spmoe/internal/fault"
)

// Number is a type that can be reduced. It excludes types whose sum would be wrong because they
// store another type, such as BF16 in a uint16.
type Number interface {
	int8 | int16 | int32 | int64 | int | uint8 | uint16 | uint32 | uint64 | uint | float32 | float64
}

// Op is the operation of a reduction.
type Op uint8

// The reductions. Max and Min of floats give NaN if any rank has a NaN.
const (
	Sum Op = iota
	Max
	Min
)

// String returns the operation's name, such as "sum".
func (op Op) String() string {
	switch op {
	case Sum:
		return "sum"
	case Max:
		return "max"
	case Min:
		return "min"
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// blockBytes is the size of the blocks that a rank reduces at a time. The blocks of all peers are
// still in the cache when the result is written back over them.
const blockBytes = 16 << 10

// AllReduce replaces buf by the element-wise reduction over all ranks, on all ranks.
//
// All ranks pass the same length and op. A sum is a balanced binary tree over the ranks, computed
// in T. Of n > 1 ranks, the first 2^i < n, for the largest such i, are one half and the others the
// other half: ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)) for eight. So if 2^i terms are shared evenly by
// the ranks, and each rank sums its terms in the same way, the result has the same bits for any
// number of ranks, on any hosts.
func AllReduce[T Number](c *Comm, buf []T, op Op) error {
	if c.group.spansHosts() && sizeOf(buf) <= payloadBytes {
		return reduceSmall(c, buf, op)
	}
	k := newCall(c, KindAllReduce, buf)
	k.count, k.op = int64(len(buf)), op
	if op > Min {
		k.err = errOp(op)
	}
	if err := c.enter(k); err != nil {
		c.retire(KindAllReduce, 0)
		return err
	}
	if c.group.dry {
		return c.countDry(KindAllReduce, sizeOf(buf), c.allReduceSent(len(buf), elemSize[T]()))
	}
	fault.Point(fault.BeforeReduction)
	if c.group.spansHosts() {
		err := allReduceHosts[T](c, len(buf), op)
		if err == nil {
			err = c.sync(KindAllReduce)
		}
		unstage(c, buf)
		c.retire(KindAllReduce, sizeOf(buf))
		return err
	}
	lo, hi := c.share(c.rank, len(buf), elemSize[T]())
	block := scratch[T](c)
	for ; lo < hi && c.Size() > 1; lo += len(block) {
		acc := block[:min(len(block), hi-lo)]
		reduceBlock(c, acc, lo, op)
		// No other rank reads or writes this range, so the result goes directly into every rank's
		// buffer.
		for j := range c.Size() {
			copy(published[T](c, j, lo, len(acc)), acc)
			fault.Point(fault.InReduction)
		}
	}
	fault.Point(fault.AfterReduction)
	err := c.sync(KindAllReduce)
	unstage(c, buf)
	c.retire(KindAllReduce, sizeOf(buf))
	return err
}

// ReduceScatter reduces src over all ranks and gives rank j the counts[j] elements of the
// result that follow those of ranks 0 to j-1.
//
// len(src) is the sum of counts and len(dst) is counts[Rank]. All ranks pass the same counts and
// op. The order of the reduction is that of [AllReduce]. dst may be this rank's own part of src,
// and must not overlap it otherwise.
func ReduceScatter[T Number](c *Comm, dst, src []T, counts []int, op Op) error {
	k := newCall(c, KindReduceScatter, src)
	k.op, k.lists[listRecv] = op, counts
	k.err = checkParts(c, counts, len(src), len(dst))
	switch {
	case k.err != nil:
	case op > Min:
		k.err = errOp(op)
	case overlap(dst, src):
		if lo := sum(counts[:c.rank]); !same(src[lo:][:len(dst)], dst) {
			k.err = fmt.Errorf("dst overlaps src: only src[%d:%d], this rank's own part, may be dst", lo, lo+len(dst))
		}
	}
	if err := c.enter(k); err != nil {
		c.retire(KindReduceScatter, 0)
		return err
	}
	if c.group.dry {
		return c.countDry(KindReduceScatter, sizeOf(src), c.reduceSent(func(j int) int { return counts[j] * elemSize[T]() }))
	}
	lo := sum(counts[:c.rank])
	if c.group.spansHosts() {
		if err := reduceScatterHosts(c, dst, counts, op); err != nil {
			c.retire(KindReduceScatter, 0)
			return err
		}
		dst = nil
	}
	reduceInto(c, dst, lo, op)
	fault.Point(fault.AfterReduction)
	err := c.sync(KindReduceScatter)
	c.retire(KindReduceScatter, sizeOf(src))
	return err
}

func errOp(op Op) error { return fmt.Errorf("%v is not Sum, Max or Min", op) }

// reduceInto writes to dst the reduction over the ranks of this host of the len(dst) elements from
// lo of their buffers. dst may be those elements of this rank's buffer.
func reduceInto[T Number](c *Comm, dst []T, lo int, op Op) {
	if len(dst) == 0 {
		return
	}
	c.takeTerms()
	size := blockBytes / elemSize[T]()
	c.spread((len(dst)+size-1)/size, sizeOf(dst)*len(c.terms), func(from, to int) {
		var room [blockBytes / 8]uint64 // in words, so that every element type is aligned
		block := unsafe.Slice((*T)(unsafe.Pointer(&room)), size)
		for at := from * size; at < min(to*size, len(dst)); at += size {
			acc := block[:min(size, len(dst)-at)]
			reduceTerms(acc, c.terms, lo+at, op)
			copy(dst[at:], acc)
			fault.Point(fault.InReduction)
		}
	})
	c.dropTerms()
}

// reduceBlock is reduceInto for an acc that is not part of a rank's buffer, on this goroutine.
func reduceBlock[T Number](c *Comm, acc []T, lo int, op Op) {
	c.takeTerms()
	reduceTerms(acc, c.terms, lo, op)
	c.dropTerms()
}

// takeTerms lists the buffers of this host's ranks, and dropTerms clears the list.
func (c *Comm) takeTerms() {
	for i, r := range c.group.locals() {
		c.terms[i] = c.peers[r].bufs[0]
	}
}

func (c *Comm) dropTerms() {
	if !c.Shared() {
		clear(c.terms)
	}
}

// reduceTerms writes to acc the reduction over the terms of their len(acc) elements from lo.
func reduceTerms[T Number](acc []T, terms [][]byte, lo int, op Op) {
	if op == Sum {
		sumTerms(acc, terms, lo)
		return
	}
	copy(acc, elements[T](terms[0], lo, len(acc)))
	for _, t := range terms[1:] {
		part := elements[T](t, lo, len(acc))
		for i, x := range acc {
			if op == Max {
				acc[i] = max(x, part[i])
			} else {
				acc[i] = min(x, part[i])
			}
		}
	}
}

// share returns the part of a range of n elements that a rank reduces. Parts begin at cache lines
// relative to the buffer's start, so that two ranks do not write the same line.
func (c *Comm) share(rank, n, elemSize int) (lo, hi int) {
	line := 64 / elemSize
	lines := (n + line - 1) / line
	lo = lines * rank / c.Size() * line
	hi = lines * (rank + 1) / c.Size() * line
	return min(lo, n), min(hi, n)
}

// scratch returns the communicator's block as elements of T.
func scratch[T Number](c *Comm) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(c.scratch))), blockBytes/elemSize[T]())
}
