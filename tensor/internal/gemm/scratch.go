package gemm

import (
	"unsafe"

	"spmoe/tensor/alloc"
)

// Scratch holds one worker's packing buffers. They grow once to a fixed bound, so a warm call
// allocates nothing. The zero value is ready to use, by one goroutine at a time.
type Scratch struct {
	// Portable says that BF16 and FP32 products have the same bits on every tier.
	Portable bool

	a, b buffer                 // packed panels
	rows [retainedBlocks]buffer // packed blocks of a that are multiplied with several blocks of b
	sums buffer                 // FP32 sums that cannot be accumulated in the result itself
	// FP32 sums before they are rounded or added into a result. The products that make them may use
	// sums.
	unrounded buffer
	partial   buffer    // what microkernels leave at tile.out
	spans     buffer    // sums of spans of k (see tree)
	edge      buffer    // a column of tiles that extends past the columns of c
	chunks    buffer    // a decoded chunk of a scaled operand
	decoded   [2]buffer // decoded blocks of scaled operands
	calls     calls
}

// retainedBlocks is the number of packed blocks of a that are held for the next block of b.
const retainedBlocks = 8

// buffer is memory aligned to a cache line, with room for an extra vector at the end.
type buffer struct{ words []float32 }

const line = 64

// atLeast returns bytes bytes with unspecified content.
func (b *buffer) atLeast(bytes int) unsafe.Pointer {
	if n := bytes/4 + 2*line/4; len(b.words) < n {
		b.words = alloc.Make[float32](n)
	}
	p := unsafe.Pointer(unsafe.SliceData(b.words))
	return unsafe.Add(p, -int(uintptr(p))&(line-1))
}
