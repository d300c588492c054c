package gemm

// The structs that assembly reads. It addresses their fields by the names in go_asm.h, so the
// fields may move.

import "unsafe"

// calls holds the arguments of assembly calls. Separate arguments would be allocated on each call.
type calls struct {
	tile     tile
	decoding decoding
	direct   direct
	offsets  [16]int
	blocks   BlockScales
}

// tile holds the arguments of a microkernel.
type tile struct {
	a, b unsafe.Pointer // packed panels, at the first step
	sum  unsafe.Pointer // FP32 sums, row-major
	// If not nil, sums are rounded to BF16 and stored here instead (see microkernel.rounds).
	out        unsafe.Pointer
	aStride    int // bytes between row panels
	sumStride  int // bytes between rows
	outStride  int
	steps      int // steps of k, at least 1
	count      int // row panels, at least 1
	columns    int // bit i: column i exists (see microkernel.masked)
	startAtSum int // 0: start at zero
	// Number of pending sums that the kernel adds at the end, if it can: from the latest back to
	// the earliest, which lies at sum.
	adds      int
	addStride int // bytes from one pending sum back to the previous one
	// If not nil, scales of the rows, rowScaleStride bytes apart, and of the columns: one for each
	// if perColumn is not 0, and otherwise one for all (see microkernel.scales).
	rowScales, columnScales   unsafe.Pointer
	rowScaleStride, perColumn int
	rowScale                  int // bytes from rowScales to the scale of the next tile's first row
	tiled
}

// decoding holds the arguments of a decoder and the notes that it leaves.
type decoding struct {
	dst, codes, scales unsafe.Pointer
	lookup             *lookup
	// Bytes between rows, or between steps of k (for scales: between blocks).
	dstStride, codeStride, scaleStride int
	rows                               int // rows, or steps of k
	count                              int // codes in a row of memory
	scaleMask                          uint64
	tailMask                           uint64
	// Bytes from codes to the prefetched address; 0: no prefetch.
	ahead int
	notes
	//lint:ignore U1000 only the assembly uses it
	steps [16]uint32
	padding
}

// notes records what decoders met.
type notes struct {
	min, max [64]uint8 // scales
	bad      [64]uint8 // bit 0 of some byte is set: a code is infinite or NaN
}

// direct holds the arguments of a kernel for few rows of a.
type direct struct {
	a, b, sum unsafe.Pointer // row panel of a, first column of b, FP32 sums
	// Bytes between columns of b or, if these are adjacent, between steps of k.
	stride    int
	sumStride int // bytes between rows of sum
	load      int // 0: start at zero
	// Runs along k and units left over. If columns are adjacent: pairs of steps, and a last step.
	runs, units int
	// Bytes from b to what is prefetched, from line to line, and from the last line of a run back
	// to the first one of the next.
	ahead, fetchLine, fetchBack int
}
