package collective

// One-sided access: between two meetings, ranks read and write each other's memory.

import (
	"errors"
	"fmt"
	"unsafe"
)

// Window is what the ranks of a communicator have opened to each other.
type Window struct {
	c    *Comm
	kind Kind
}

// Open lets every rank read and write the two buffers of every other, either of which may be empty,
// until Close. All give the same kind, KindDispatch or KindCombine, and the same bytes of a row and
// of an element. Between processes the buffers must be memory of the ranks' Allocators.
//
// It is collective, as MPI_Win_fence is. Who writes where is the ranks' business: no two may write
// one place.
func (c *Comm) Open(kind Kind, row, elem int, first, second []byte) (Window, error) {
	k := call{kind: kind, fields: fields{count: int64(row), root: int64(elem)}}
	for i, buf := range [][]byte{first, second} {
		k.ptr[i], k.bufs[i].bytes = unsafe.Pointer(unsafe.SliceData(buf)), int64(len(buf))
		if !c.Shared() || len(buf) == 0 {
			continue
		}
		offset, ok := c.group.world.heap.Offset(k.ptr[i])
		if !ok {
			k.err = fmt.Errorf("the peers cannot reach buffer %d of %d bytes: take its memory from the communicator's Allocator", i+1, len(buf))
		}
		k.bufs[i].offset = offset
	}
	if c.group.spansHosts() {
		k.err = errors.New("memory can be opened to the ranks of one host only: open it on a communicator of theirs, see Split")
	}
	if err := c.enter(k); err != nil {
		c.retire(kind, 0)
		return Window{}, err
	}
	return Window{c, kind}, nil
}

// First is the first buffer of a rank. How long it is, its rank has said: who counts on more than
// that must look.
func (w Window) First(rank int) []byte { return w.c.peers[rank].bufs[0] }

// Second is the second buffer of a rank.
func (w Window) Second(rank int) []byte { return w.c.peers[rank].bufs[1] }

// Close returns when every rank has closed the window: all that was written is there, and the
// buffers are their owners' again. bytes is what this rank has read and written through it, for the
// statistics.
func (w Window) Close(bytes int) error {
	err := w.c.sync(w.kind)
	w.c.retire(w.kind, bytes)
	return err
}
