package tensor

import "github.com/apache/arrow/go/v17/arrow/memory"

// arenaChunk is the smallest piece of memory that an arena asks for.
const arenaChunk = 8 << 20

// Arena hands out tensors by bumping an offset through Arrow buffers, and takes them all
// back at once. After one step has made it grow, the steps that follow allocate nothing.
type Arena struct {
	// Allocator is where the buffers come from; nil means Go's memory. It is set before first use.
	Allocator memory.Allocator

	// Poison fills memory that is taken back with NaNs, so that tests find a tensor that outlives
	// its mark.
	Poison bool

	chunks  []*memory.Buffer
	current int // chunk that is being filled
	offset  int // first free byte of the current chunk
	peak    int // most bytes in use at once, whole chunks before the current one included
}

// Mark is a position in an arena to which Release returns.
type Mark struct{ chunk, offset int }

// New returns an uninitialized tensor that lives until the arena is released past it.
func (a *Arena) New(dtype DType, dims ...int) Tensor {
	bytes := (checkedLen(dims)*dtype.Size() + Alignment - 1) &^ (Alignment - 1)
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
		// A tensor that does not fit leaves a gap at the end of a chunk. Where each chunk is as
		// large as all before it, gaps are few; what is never used of the last chunk takes no
		// memory.
		buf.Resize(max(bytes, arenaChunk, a.held()))
		a.chunks = append(a.chunks, buf)
	}
	t := view(a.chunks[a.current], min(a.offset, a.chunks[a.current].Len()-1), dtype, dims)
	a.offset += bytes
	a.peak = max(a.peak, a.used())
	return t
}

// Mark returns the present position.
func (a *Arena) Mark() Mark { return Mark{a.current, a.offset} }

// Release takes back every tensor handed out since the mark.
func (a *Arena) Release(m Mark) {
	if a.Poison {
		a.poison(m)
	}
	a.current, a.offset = m.chunk, m.offset
}

// poison overwrites what was handed out since the mark.
func (a *Arena) poison(m Mark) {
	for i := m.chunk; i <= a.current && i < len(a.chunks); i++ {
		b := a.chunks[i].Bytes()
		if i == a.current {
			b = b[:a.offset]
		}
		if i == m.chunk {
			b = b[min(m.offset, len(b)):]
		}
		for j := range b {
			b[j] = 0xff
		}
	}
}

// Reset takes back every tensor.
func (a *Arena) Reset() { a.Release(Mark{}) }

// Peak returns the most bytes that were ever in use at once.
func (a *Arena) Peak() int { return a.peak }

// held is the bytes of all chunks.
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
