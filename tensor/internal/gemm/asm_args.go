package gemm

// The structs that assembly reads. It addresses their fields by the names in go_asm.h, so the
// fields may move.

import "unsafe"

// calls holds the arguments of assembly calls. Separate arguments would be allocated on each call.
type calls struct {
	tile       tile
	decoding   decoding
	direct     [2]direct
	panel      columnPanel
	offsets    [16]int
	paddedTail [64]uint16 // the padded end of a row
	blocks     BlockScales
	flip       uint32 // the bits that turn signed byte codes into unsigned ones
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

// direct multiplies groups of rows of b with all rows of a. The kernel sets the size of a group.
type direct struct {
	// Vectors of BF16: for every 32 elements of k, one vector per row.
	a                   unsafe.Pointer
	b, sum              unsafe.Pointer // at the first group
	scales              unsafe.Pointer // if b holds codes
	codes               *directCodes
	stride, scaleStride int // bytes between rows of b
	sumStride           int // bytes between rows of sum
	ahead               int // bytes from the start of b to the start of its prefetch
	// For kernels that fetch lines at a distance: bytes from one line to the next, from the end of
	// a step's lines to those of the next step, and from the end of a group to the next group.
	fetchStride, fetchBack, fetchJump int
	scalesAhead                       int            // bytes from the scales being read to those being prefetched
	near                              int            // not 0: prefetch the next group to L1
	partial                           unsafe.Pointer // vectors of sums, kept between two runs along k
	load, finish                      int            // load 0: start at zero; finish 0: leave vectors of sums
	steps                             int            // whole vectors in a row of b
	tail                              uint64         // mask of the elements of a partial last vector
	groups                            int            // groups left
	blocks                            int            // blocks of up to 512 codes
	//lint:ignore U1000 only the assembly uses it
	left                    int // steps, while counting
	moved                   moves
	wholeScales, lastScales uint64 // masks of the scales of a block and of the last block
	notes
	//lint:ignore U1000 only the assembly uses it
	rowSteps [8][16]uint32
	//lint:ignore U1000 only the assembly uses it
	second [8][32]uint16

	rows, columns int // of a, and of b in a group; the assembly does not use them
}

// moves counts the bytes from pointers to the current positions. The pointers themselves do not
// move, since they must not leave their matrices.
type moves struct {
	//lint:ignore U1000 only the assembly uses them
	b, sum, scales int
	partial        int
}

// columnPanel describes rows of b. A run of them along k is packed into a column panel.
type columnPanel struct {
	dst, src, scales    unsafe.Pointer
	stride, scaleStride int // bytes between rows
	k                   int // elements along k
	ahead               int // bytes from src to the prefetched address
	notes
}

// directCodes holds the tables with which kernels decode codes.
type directCodes struct {
	codeTables
	// In every byte: a bound. Codes for which 2·code - 16 is not below it are looked up.
	rare [64]uint8
	top  uint32 // as in lookup, minus 7
}
