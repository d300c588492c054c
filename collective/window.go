package collective

// One-sided access: between two meetings, ranks read and write each other's memory.

import (
	"errors"
	"fmt"
	"unsafe"
)

// Window gives access to the memory that the ranks of a communicator have opened to each other.
type Window struct {
	c    *Comm
	kind Kind
}

// Open lets every rank read and write the two buffers of every other rank until Close. Either
// buffer may be empty. All ranks pass the same kind, KindDispatch or KindCombine, and the same
// bytes per row and per element. Between processes the buffers must be memory of the ranks'
// Allocators.
//
// It is collective, like MPI_Win_fence. The ranks must agree on the places that each writes: no two
// ranks may write the same place.
func (c *Comm) Open(kind Kind, row, elem int, first, second []byte) (Window, error) {
	k := call{kind: kind, fields: fields{count: int64(row), width: int64(elem)}}
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

// First returns the first buffer of a rank. Its length comes from the peer: check it before use.
func (w Window) First(rank int) []byte { return w.c.peers[rank].bufs[0] }

// Second returns the second buffer of a rank. Check its length like that of the first.
func (w Window) Second(rank int) []byte { return w.c.peers[rank].bufs[1] }

// Close returns when every rank has closed the window. Then all writes are complete, and the
// buffers belong to their owners again. bytes is what this rank has read and written through the
// window, for the statistics.
func (w Window) Close(bytes int) error {
	err := w.c.sync(w.kind)
	w.c.retire(w.kind, bytes)
	return err
}
