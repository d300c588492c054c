// Package quant holds the quantization kernels. There are three kinds. Table says which of them a
// tier may run.
//
// The tile kernels make MXFP8 in both directions at once from tiles of 32 by 64 BF16. They take two
// steps. Scan reads a tile once and stores the scale of each block. It also stores the parts of
// each element that do not depend on the scale: the code for an exponent bias of 0, the exponent
// and the sign. Encode subtracts the scale from the exponent field of the code. A code that is not
// subnormal is then complete. Vectors with subnormal codes take a slower path through tables.
//
// The strip kernels do the same with AVX2 for strips of 32 rows of BF16 (see Strip). They round
// vectors with subnormal codes twice.
//
// The lane kernels carry out the definition in FP32, for any format (see Grid).
package quant

//go:generate go run ./_asm

import "unsafe"

// The extents of a tile.
const (
	Rows = blockSize
	Cols = 64
)

// Scan reads the tile at x and fills work. The rows of x are stride bytes apart. Scan reports
// whether the tile is odd and cannot be encoded. An odd tile has a block with a NaN, an infinity or
// a magnitude near 2^128, or a block whose magnitudes are all below about 2^-87 and not all zero.
func Scan(x unsafe.Pointer, stride int, rule *Rule, work *Work) (odd bool) {
	return scanAVX512(x, stride, rule, work)
}

// Encode writes the codes and scales of a scanned tile: of blocks along rows, along columns, or
// both. With stream it writes the codes with non-temporal stores. The codes must then begin at
// multiples of 64 bytes, and the caller must call Drain at the end.
func Encode(t *Tile, rows, cols, stream bool) {
	switch {
	case rows && cols && stream:
		encodeBothStreamAVX512(t)
	case rows && cols:
		encodeBothAVX512(t)
	case rows && stream:
		encodeRowsStreamAVX512(t)
	case rows:
		encodeRowsAVX512(t)
	case stream:
		encodeColsStreamAVX512(t)
	default:
		encodeColsAVX512(t)
	}
}

// Drain orders the non-temporal stores of codes before later stores.
func Drain() { drainAVX512() }

// Tile says where an encoder writes its output.
type Tile struct {
	Work         *Work
	Rule         *Rule
	X            unsafe.Pointer // as passed to Scan
	Stride       int
	Rows         int            // rows to write, 1 to 32
	RowCodes     unsafe.Pointer // with blocks along rows
	RowStride    int            // bytes between rows of codes
	RowScales    unsafe.Pointer // two per row
	RowScaleStep int            // bytes between rows of scales
	ColCodes     unsafe.Pointer // with blocks along columns
	ColStride    int
	ColScales    unsafe.Pointer // 64
	// Ahead is a later input tile, with rows Stride bytes apart. It is prefetched into the
	// second-level cache.
	Ahead unsafe.Pointer
}

// Work passes the results of Scan to Encode. Only the assembly knows its layout. It should be
// aligned to 64 bytes.
type Work [2*Rows*Cols + Rows*Cols/8 + 8*Cols]byte

// Rule is a format and scale mode in the form that the tile kernels need.
type Rule struct {
	roundUp  uint16 // twice the addend for a magnitude before its exponent is taken
	shift    uint16 // left shift of a BF16 that puts the code into its upper byte
	mantissa uint16 // mantissa bits of the format
	emax     uint8  // exponent of the format's largest value
	largest  uint8  // code of that value
	bias     uint8  // exponent bias of the format
	limit    uint8  // bias - 2
	exact    uint8  // bias - 1
	// align makes exponent - scale 0 where the first table's distance shifts a significand.
	align uint8
	mask  uint8 // bits of the exponent field: all above the mantissa
	_     [3]uint8
	table int64 // offset of the format's rounding table
}

// Minifloat returns the rule of an 8-bit format for a scale mode. The scale byte of a block is the
// exponent field of a + roundUp, less emax, where a is the FP32 bits of its largest magnitude.
// mantissa is 3 (E4M3) or 2 (E5M2). roundUp is below 2^23, and its lower 16 bits are all 0 or all
// 1.
func Minifloat(mantissa, emax int, largest uint8, roundUp uint32) Rule {
	bias := uint8(1<<(6-mantissa) - 1)
	return Rule{
		roundUp:  uint16(roundUp >> 16 << 1),
		shift:    uint16(mantissa + 1),
		mantissa: uint16(mantissa),
		emax:     uint8(emax),
		largest:  largest,
		bias:     bias,
		limit:    bias - 2,
		exact:    bias - 1,
		align:    bias + uint8(mantissa) - 3, // shifts by 5 to 8
		mask:     0xff << mantissa,
		table:    int64(128 * (3 - mantissa)),
	}
}
