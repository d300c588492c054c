package gemm

import "unsafe"

// Scratch holds one worker's packing buffers; they grow once to a fixed bound, so that a warm call
// allocates nothing. The zero value is ready to use, by one goroutine at a time.
type Scratch struct {
	a, b      buffer             // packed panels
	rows      [keptBlocks]buffer // packed blocks of a that meet many blocks of b
	sums      buffer             // FP32 sums that a result cannot hold as they are made
	unrounded buffer             // FP32 sums on their way into a result; the products that make them may need sums
	partial   buffer             // vectors of sums of a direct product
	spans     buffer             // sums of spans of k (see tree)
	edge      buffer             // a tile column of which c has only a part
	chunks    buffer             // a piece of a scaled operand, decoded
	decoded   [2]buffer          // blocks of scaled operands, decoded
	calls     calls
}

// keptBlocks is how many packed blocks of a wait for the next block of b.
const keptBlocks = 8

// buffer is memory on a cache line's boundary with a vector to spare at the end.
type buffer struct{ words []float32 }

const line = 64

// atLeast returns bytes bytes of unspecified content.
func (b *buffer) atLeast(bytes int) unsafe.Pointer {
	if n := bytes/4 + 2*line/4; len(b.words) < n {
		b.words = make([]float32, n)
	}
	p := unsafe.Pointer(unsafe.SliceData(b.words))
	return unsafe.Add(p, -int(uintptr(p))&(line-1))
}
