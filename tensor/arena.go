package tensor

import (
	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/tensor/internal/pages"
)

// arenaChunk is the smallest piece of memory that an arena asks for.
const arenaChunk = 2 << 20

// Arena allocates tensors by advancing an offset through Arrow buffers. Release frees them all at
// once. The first step makes the arena grow. Later steps allocate no memory.
type Arena struct {
	// Allocator provides the buffers. Nil means Go's heap. Set it before the first use.
	Allocator memory.Allocator

	// First is the size in bytes of the first chunk, unless arenaChunk is larger. An arena of known
	// size is then one chunk. Memory that is not used stays without physical memory.
	First int

	// Poison fills released memory with NaNs. A test then detects a tensor that is used after its
	// release.
	Poison bool

	dry     *dryCount // there is no memory; nil: there is
	chunks  []chunk
	current int // index of the chunk being filled
	offset  int // first free byte of the current chunk
	peak    int // most bytes in use at once, with all of the chunks before the current one
}

// chunk is a piece of an arena.
type chunk struct {
	*memory.Buffer
	touched int // bytes that may occupy physical memory, from the beginning
	recent  int // of these, those that were in use since the last Trim
}

// Mark is a position in an arena to which Release returns.
type Mark struct{ chunk, offset int }

// New returns an uninitialized tensor that lives until the arena is released past it.
func (a *Arena) New(dtype DType, dims ...int) Tensor {
	bytes := (checkedLen(dims)*dtype.Size() + Alignment - 1) &^ (Alignment - 1)
	if a.dry != nil {
		a.count(bytes)
		return NewDry(dtype, dims...)
	}
	for a.current < len(a.chunks) && a.offset+bytes > a.chunks[a.current].Len() {
		a.current++
		a.offset = 0
	}
	if a.current == len(a.chunks) {
		allocator := a.Allocator
		if allocator == nil {
			allocator = &largePages{}
		}
		buf := memory.NewResizableBuffer(allocator)
		// A tensor that does not fit leaves a gap at the end of a chunk. Each chunk is at least as
		// large as all earlier chunks together, so gaps are rare. The unused end of the last chunk
		// occupies no physical memory.
		least := arenaChunk
		if len(a.chunks) == 0 {
			least = max(least, a.First)
		}
		buf.Resize(max(bytes, least, a.held()))
		a.chunks = append(a.chunks, chunk{Buffer: buf})
	}
	c := &a.chunks[a.current]
	t := view(c.Buffer, min(a.offset, c.Len()-1), dtype, dims)
	a.offset += bytes
	c.recent = max(c.recent, a.offset)
	a.peak = max(a.peak, a.used())
	return t
}

// Mark returns the current position.
func (a *Arena) Mark() Mark { return Mark{a.current, a.offset} }

// Release frees every tensor allocated since the mark.
func (a *Arena) Release(m Mark) {
	if a.Poison {
		a.poison(m)
	}
	if a.dry != nil && m.offset == 0 {
		a.dry.end(a.peak)
	}
	a.current, a.offset = m.chunk, m.offset
}

// poison overwrites the memory allocated since the mark.
func (a *Arena) poison(m Mark) {
	a.Between(m, a.Mark(), func(b []byte) bool {
		b[0] = 0xff
		for n := 1; n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
		return true
	})
}

// Between yields the memory that was allocated between two marks, in one piece per chunk.
func (a *Arena) Between(from, to Mark, yield func([]byte) bool) {
	for i := from.chunk; i <= to.chunk && i < len(a.chunks); i++ {
		b := a.chunks[i].Bytes()
		if i == to.chunk {
			b = b[:to.offset]
		}
		if i == from.chunk {
			b = b[min(from.offset, len(b)):]
		}
		if len(b) > 0 && !yield(b) {
			return
		}
	}
}

// Used yields all memory in use, in one piece per chunk.
func (a *Arena) Used(yield func([]byte) bool) { a.Between(Mark{}, a.Mark(), yield) }

// Reset frees every tensor.
func (a *Arena) Reset() { a.Release(Mark{}) }

// Trim returns the memory to the system that was not in use since the last Trim. The arenas of
// ranks whose experts receive more rows in one step and fewer in the next are then never all at
// their largest. Memory of an Allocator is kept, because other processes may share it.
func (a *Arena) Trim() {
	for i := range a.chunks {
		c := &a.chunks[i]
		if c.touched <= c.recent {
			c.touched = c.recent
		} else if a.Allocator == nil {
			c.touched = min(c.recent+pages.Release(c.Bytes()[c.recent:]), c.touched)
		}
		switch {
		case i == a.current:
			c.recent = a.offset
		case i > a.current:
			c.recent = 0
		}
	}
}

// Peak returns the largest number of bytes that were in use at once.
func (a *Arena) Peak() int { return a.peak }

// held returns the total size of all chunks in bytes.
func (a *Arena) held() int {
	n := 0
	for _, c := range a.chunks {
		n += c.Len()
	}
	return n
}

func (a *Arena) used() int {
	n := a.offset
	for _, c := range a.chunks[:a.current] {
		n += c.Len()
	}
	return n
}
