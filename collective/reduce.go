package collective

// Collectives that combine the ranks' elements. Each rank reduces its own part of the range, block by block, reading
// its peers' buffers directly, always in rank order, so the result is the same bits on every rank and in every run.

import (
	"fmt"
	"unsafe"
)

// Number is a type that can be reduced. It leaves out types that are only stored as one of these, such as a BF16
// kept in a uint16, whose sum would be wrong.
type Number interface {
	int8 | int16 | int32 | int64 | int | uint8 | uint16 | uint32 | uint64 | uint | float32 | float64
}

// Op is how a reduction combines two elements.
type Op uint8

// The reductions. Max and Min of floats give NaN if any rank has a NaN.
const (
	Sum Op = iota
	Max
	Min
)

// String is the operation's name, such as "sum".
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

// blockBytes is how much of each rank's buffer is reduced at a time: small enough that the blocks of all peers are
// still in the cache when the result is written back over them.
const blockBytes = 16 << 10

// AllReduce replaces buf by the element-wise reduction over all ranks, on all ranks.
//
// All give the same length and op. The result is ((rank 0 op rank 1) op rank 2) ..., computed in T.
func AllReduce[T Number](c *Comm, buf []T, op Op) error {
	k := newCall(c, KindAllReduce, buf)
	k.count, k.op = int64(len(buf)), op
	if op > Min {
		k.err = fmt.Errorf("%v is not Sum, Max or Min", op)
	}
	if err := c.enter(k); err != nil {
		c.retire(KindAllReduce, 0)
		return err
	}
	lo, hi := c.share(len(buf), elemSize[T]())
	block := scratch[T](c)
	for ; lo < hi && c.Size() > 1; lo += len(block) {
		acc := block[:min(len(block), hi-lo)]
		reduceBlock(c, acc, lo, op)
		// Nobody else reads or writes this range, so the result goes straight into every rank's buffer.
		for j := range c.Size() {
			copy(published[T](c, j, lo, len(acc)), acc)
		}
	}
	err := c.sync(KindAllReduce)
	unstage(c, buf)
	c.retire(KindAllReduce, sizeOf(buf))
	return err
}

// ReduceScatter reduces src over all ranks and gives rank j the counts[j] elements of the result that follow those of
// the ranks before it.
//
// len(src) is the sum of counts and len(dst) is counts[Rank]; all give the same counts and op. The order of the
// reduction is that of [AllReduce]. dst may be this rank's own part of src, and must not overlap it otherwise.
func ReduceScatter[T Number](c *Comm, dst, src []T, counts []int, op Op) error {
	k := newCall(c, KindReduceScatter, src)
	k.op, k.lists[listRecv] = op, counts
	k.err = checkParts(c, counts, len(src), len(dst))
	switch {
	case k.err != nil:
	case op > Min:
		k.err = fmt.Errorf("%v is not Sum, Max or Min", op)
	case overlap(dst, src):
		if lo := sum(counts[:c.rank]); !same(src[lo:][:len(dst)], dst) {
			k.err = fmt.Errorf("dst overlaps src: only src[%d:%d], this rank's own part, may be dst", lo, lo+len(dst))
		}
	}
	if err := c.enter(k); err != nil {
		c.retire(KindReduceScatter, 0)
		return err
	}
	lo := sum(counts[:c.rank])
	for block := scratch[T](c); len(dst) > 0; {
		acc := block[:min(len(block), len(dst))]
		reduceBlock(c, acc, lo, op)
		copy(dst, acc)
		lo, dst = lo+len(acc), dst[len(acc):]
	}
	err := c.sync(KindReduceScatter)
	c.retire(KindReduceScatter, sizeOf(src))
	return err
}

// reduceBlock writes into acc the reduction over all ranks of the len(acc) elements from lo of their buffers.
func reduceBlock[T Number](c *Comm, acc []T, lo int, op Op) {
	part := func(j int) []T { return published[T](c, j, lo, len(acc)) }
	if c.Size() == 1 {
		copy(acc, part(0))
		return
	}
	combine(acc, part(0), part(1), op)
	for j := 2; j < c.Size(); j++ {
		combine(acc, acc, part(j), op)
	}
}

// combine sets dst to a op b; dst may be a. All have the same length.
func combine[T Number](dst, a, b []T, op Op) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case Sum:
		add(dst, a, b)
	case Max:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	case Min:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	}
}

// add sets dst to a + b. It is the hot loop of gradient reduction, hence unrolled.
func add[T Number](dst, a, b []T) {
	for len(dst) >= 8 && len(a) >= 8 && len(b) >= 8 {
		d, x, y := (*[8]T)(dst), (*[8]T)(a), (*[8]T)(b)
		d[0] = x[0] + y[0]
		d[1] = x[1] + y[1]
		d[2] = x[2] + y[2]
		d[3] = x[3] + y[3]
		d[4] = x[4] + y[4]
		d[5] = x[5] + y[5]
		d[6] = x[6] + y[6]
		d[7] = x[7] + y[7]
		dst, a, b = dst[8:], a[8:], b[8:]
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// share is the part of a range of n elements that this rank reduces. Parts begin on a cache line of the buffer's start,
// so that two ranks do not write the same one.
func (c *Comm) share(n, elemSize int) (lo, hi int) {
	line := 64 / elemSize
	lines := (n + line - 1) / line
	lo = lines * c.rank / c.Size() * line
	hi = lines * (c.rank + 1) / c.Size() * line
	return min(lo, n), min(hi, n)
}

// scratch is the communicator's block as elements of T.
func scratch[T Number](c *Comm) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(c.scratch))), blockBytes/elemSize[T]())
}
