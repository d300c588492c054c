package gemm

import "unsafe"

// Scratch holds one worker's packing buffers; they grow once to a fixed bound, so that a warm call allocates nothing. The zero
// value is ready to use, by one goroutine at a time.
type Scratch struct {
	a, b    buffer // packed panels
	sums    buffer // FP32 sums that a BF16 result cannot hold between two runs of steps
	edge    buffer // a tile column of which c has only a part
	offsets [16]int
	tile    tile
}

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

// tile is what a microkernel reads: the assembly knows the order of the fields, which all have 8 bytes.
type tile struct {
	a, b       unsafe.Pointer // packed panels, at the first step
	sum        unsafe.Pointer // FP32 sums, row-major
	out        unsafe.Pointer // if not nil, sums are not stored but rounded to BF16 here (see family.rounds)
	aStride    int            // bytes from a row panel to the next
	sumStride  int            // bytes from row to row
	outStride  int
	steps      int // steps of k, at least 1
	count      int // row panels, at least 1
	columns    int // bit i: column i exists (see family.masked)
	startAtSum int // 0: start at zero
}
