package gemm

// The structs that assembly reads. It names their fields (go_asm.h), so that they may move.

import "unsafe"

// calls holds the arguments of assembly calls. On their own they would be allocated for each call.
type calls struct {
	tile     tile
	decoding decoding
	direct   [2]direct
	across   across
	panel    columnPanel
	offsets  [16]int
	rest     [64]uint16 // the end of a row
	flip     uint32     // what turns codes of bytes with a sign into those without
}

// tile is what a microkernel reads.
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
	adds       int // places whose sums are added at the end, if the kernel can: sum is the last of them
	addStride  int // bytes from one back to the one before
	tiled
}

// decoding is what the assembly reads to decode, and what it notes.
type decoding struct {
	dst, codes, scales                 unsafe.Pointer
	lookup                             *lookup
	dstStride, codeStride, scaleStride int // bytes from row to row, or from one step of k (block of scales) to the next
	rows                               int // rows, or steps of k
	count                              int // codes in a row of memory
	scaleMask                          uint64
	tailMask                           uint64
	ahead                              int // bytes from codes to what is fetched, if it is
	notes
	//lint:ignore U1000 only the assembly uses it
	steps [16]uint32
	padding
}

// notes is what decoding has met.
type notes struct {
	min, max [64]uint8 // scales
	bad      [64]uint8 // bit 0 of some byte: a code that is infinite or NaN
}

// direct multiplies groups of rows of b, as many as the kernel takes, with all rows of a.
type direct struct {
	a                   unsafe.Pointer // vectors of BF16: for every 32 of k, one of each row
	b, sum              unsafe.Pointer // of the first group
	scales              unsafe.Pointer // if b holds codes
	codes               *directCodes
	stride, scaleStride int            // bytes from row to row of b
	sumStride           int            // and of the sums
	ahead               int            // bytes from where reading of b begins to where fetching does
	scalesAhead         int            // bytes from what is read of scales to what is fetched
	near                int            // not 0: the next group is fetched to the first level of cache
	partial             unsafe.Pointer // vectors of sums between two runs along k
	load, finish        int            // 0: start at 0; 0: leave vectors of sums
	steps               int            // whole vectors of a row of b
	tail                uint64         // elements of a last one
	groups              int            // counted down
	blocks              int            // of up to 512 codes
	//lint:ignore U1000 only the assembly uses it
	left                    int // steps, while counting
	moved                   moves
	wholeScales, lastScales uint64 // scales of a block, of the last block
	notes
	//lint:ignore U1000 only the assembly uses it
	rowSteps [8][16]uint32
	//lint:ignore U1000 only the assembly uses it
	second [8][32]uint16

	rows, columns int // of a, and of b in a group; the assembly does not use them
}

// moves is how many bytes pointers are behind their begin: they themselves must not leave their
// matrix.
type moves struct{ b, sum, scales, partial int }

// across multiplies groups of 32 rows of b that are neighbours in memory with all rows of a.
type across struct {
	a                              unsafe.Pointer // row panel, at the first step
	b, sum, scales                 unsafe.Pointer // of the first group; scales if b holds codes
	codes                          *directCodes
	partial                        unsafe.Pointer // vectors of sums between two runs along k
	stride, scaleStride, sumStride int            // bytes from step to step of k, from block to block, from row to row
	ahead                          int            // bytes from b to what is fetched next
	lines, linesLeft, jump         int            // cache lines of a step that are fetched, those left, bytes from their end to the next step
	load, finish                   int            // 0: start at 0; 0: leave vectors of sums
	k                              int            // elements along k
	//lint:ignore U1000 only the assembly uses it
	left   int // of k, while counting
	groups int // counted down
	moved  moves
	notes
	fetchStep int // bytes from one fetch to the next, if the kernel does not fetch line by line
}

// columnPanel is rows of b that are neighbours in memory, a run along k, on their way into a column
// panel.
type columnPanel struct {
	dst, src, scales              unsafe.Pointer
	lookup                        *lookup
	stride, scaleStride           int // bytes from step to step of k, from block to block
	k                             int // elements along k
	ahead, lines, linesLeft, jump int // as of across
	notes
}

// directCodes is what kernels decode codes with.
type directCodes struct {
	codeTables
	rare [64]uint8 // in every byte: what twice a code less 16 must be less than, lest it is looked up
	top  uint32    // as of lookup, but less 7
}
