package collective

// Windows on lists of buffers.

import (
	"fmt"
	"unsafe"
)

// Buffers gives access to the lists of buffers that the ranks of a communicator have opened to each
// other.
type Buffers struct{ window Window }

// OpenBuffers lets every rank read and write the buffers of every other rank until Close, like
// [Comm.Open]. Ranks may pass lists of different lengths. Between processes the buffers must be
// memory of the ranks' Allocators.
func (c *Comm) OpenBuffers(list [][]byte) (Buffers, error) {
	if !c.Shared() {
		// The peers read the slice headers in place.
		headers := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*headerBytes)
		w, err := c.Open(KindBuffers, 0, 0, headers, nil)
		return Buffers{w}, err
	}
	table, err := c.locate(list)
	if err != nil {
		return Buffers{}, c.refuse(KindBuffers, err)
	}
	w, err := c.Open(KindBuffers, 0, 0, bytesOf(table), nil)
	return Buffers{w}, err
}

const headerBytes = int(unsafe.Sizeof([]byte(nil)))

// locate returns the offset in the heap and the length of each buffer, in memory that the peers can
// read.
func (c *Comm) locate(list [][]byte) ([]int64, error) {
	c.table = c.grown(c.table, 16*len(list))
	table := elements[int64](c.table, 0, 2*len(list))
	for i, b := range list {
		table[2*i], table[2*i+1] = 0, int64(len(b))
		if len(b) == 0 {
			continue
		}
		offset, ok := c.group.world.heap.Offset(unsafe.Pointer(unsafe.SliceData(b)))
		if !ok {
			return nil, fmt.Errorf("the peers cannot reach buffer %d of %d bytes: take its memory from the communicator's Allocator", i+1, len(b))
		}
		table[2*i] = offset
	}
	return table, nil
}

// refuse enters a call with an error in its arguments, which all ranks return.
func (c *Comm) refuse(kind Kind, problem error) error {
	err := c.enter(call{kind: kind, err: problem})
	c.retire(kind, 0)
	return err
}

// Of returns the buffers of a rank. Their number and lengths come from the peer: check them before
// use.
func (b Buffers) Of(rank int) ([][]byte, error) {
	c, first := b.window.c, b.window.First(rank)
	if !c.Shared() {
		if len(first) == 0 {
			return nil, nil
		}
		return unsafe.Slice((*[]byte)(unsafe.Pointer(unsafe.SliceData(first))), len(first)/headerBytes), nil
	}
	list := make([][]byte, len(first)/16)
	for i := range list {
		e := elements[int64](first, 2*i, 2)
		offset, bytes := e[0], e[1] // copies, because the owner may change them at any time
		if bytes == 0 {
			continue
		}
		p, ok := c.group.world.heap.Within(c.group.worldRanks[rank], offset, bytes)
		if !ok {
			return nil, c.group.broken(c.seq, rank, fmt.Errorf("its buffer of %d bytes is at %d of the heap, outside of its rank's memory", bytes, offset))
		}
		list[i] = unsafe.Slice((*byte)(p), bytes)
	}
	return list, nil
}

// Close is [Window.Close].
func (b Buffers) Close(bytes int) error { return b.window.Close(bytes) }
