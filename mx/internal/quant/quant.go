// Package quant holds the kernels that quantize, of three kinds. Table says which a tier may run.
//
// Those for tiles of 32 by 64 BF16 make MXFP8 or MXINT8 in both directions at once, in two steps.
// Scan reads a tile once and leaves the scale of each block and, for MXFP8, what of each element
// does not depend on it: the code it would have under an exponent bias of 0, its exponent and its
// sign. Encode subtracts the scale from the code's exponent field, which is all that is left to do
// for a code that is not subnormal; vectors with subnormal codes take a detour through tables.
// MXINT8 codes are significands shifted by the distance between exponent and scale. FP32 goes
// through Narrow first.
//
// Those for strips of 32 rows of BF16 do the same with AVX2 (see Strip), but round twice where they
// have to.
//
// Those for any format carry out the definition in FP32 (see Grid).
package quant

//go:generate go run ./asm

import "unsafe"

// The extents of a tile.
const (
	Rows = blockSize
	Cols = 64
)

// Narrow sets the tile of BF16 at dst, rows without gaps, to the tile of FP32 at src, rows stride
// bytes apart, rounded to odd: truncated, the last bit set if that lost anything. It fetches the
// tile at ahead, rows as far apart, into the second-level cache. Rounding such a number to at most
// 5 bits of mantissa, or comparing it with a number of at most 6, gives what the FP32 would have
// given; INT8 needs more.
func Narrow(dst, src unsafe.Pointer, stride int, ahead unsafe.Pointer) {
	narrowAVX512(dst, src, stride, ahead)
}

// Scan reads the tile at x, rows stride bytes apart, and fills work. It reports whether the tile is
// odd and cannot be encoded: a block holds a NaN, an infinity or a magnitude near 2^128, or only
// magnitudes under about 2^-87 that are not all zero.
func Scan(x unsafe.Pointer, stride int, rule *Rule, work *Work) (odd bool) {
	if rule.integer {
		return scanINT8AVX512(x, stride, rule, work)
	}
	return scanAVX512(x, stride, rule, work)
}

// Encode writes the codes and scales of a scanned tile: of blocks along rows, along columns, or
// both. With stream, codes go past the caches; then they begin at multiples of 64 bytes, and Drain
// is to be called in the end.
func Encode(t *Tile, rows, cols, stream bool) {
	switch {
	case stream:
		encodeStream(t, rows, cols)
	case rows && cols && t.Rule.integer:
		encodeINT8BothAVX512(t)
	case rows && cols:
		encodeBothAVX512(t)
	case rows && t.Rule.integer:
		encodeINT8RowsAVX512(t)
	case rows:
		encodeRowsAVX512(t)
	case t.Rule.integer:
		encodeINT8ColsAVX512(t)
	default:
		encodeColsAVX512(t)
	}
}

func encodeStream(t *Tile, rows, cols bool) {
	switch {
	case rows && cols && t.Rule.integer:
		encodeINT8BothStreamAVX512(t)
	case rows && cols:
		encodeBothStreamAVX512(t)
	case rows && t.Rule.integer:
		encodeINT8RowsStreamAVX512(t)
	case rows:
		encodeRowsStreamAVX512(t)
	case t.Rule.integer:
		encodeINT8ColsStreamAVX512(t)
	default:
		encodeColsStreamAVX512(t)
	}
}

// Drain makes codes that went past the caches visible before what is stored next.
func Drain() { drainAVX512() }

// Tile says where the output of an encoder goes.
type Tile struct {
	Work         *Work
	Rule         *Rule
	X            unsafe.Pointer // as given to Scan
	Stride       int
	Rows         int            // rows to write, 1 to 32
	RowCodes     unsafe.Pointer // codes with blocks along rows
	RowStride    int            // bytes from one row of codes to the next
	RowScales    unsafe.Pointer // two a row
	RowScaleStep int            // bytes from one row of scales to the next
	ColCodes     unsafe.Pointer // codes with blocks along columns
	ColStride    int
	ColScales    unsafe.Pointer // 64
	Ahead        unsafe.Pointer // a tile of input that is wanted soon, rows Stride apart: fetched into the second-level cache
}

// Work is what Scan tells Encode. Only the assembly looks inside; it should lie at a multiple of 64
// bytes.
type Work [2*Rows*Cols + Rows*Cols/8 + 8*Cols]byte

// Rule is a format and scale mode as the kernels want it.
type Rule struct {
	roundUp  uint16 // twice what is added to a magnitude before its exponent is taken
	shift    uint16 // left shift that brings the code into the upper byte of a BF16
	mantissa uint16 // mantissa bits of the format
	emax     uint8  // exponent of the format's largest value
	largest  uint8  // code of that value
	bias     uint8  // exponent bias of the format
	limit    uint8  // bias - 2
	exact    uint8  // bias - 1
	align    uint8  // makes the exponent less the scale 0 where a significand is to be shifted by the first table's distance
	mask     uint8  // bits of the exponent field, all above the mantissa
	integer  bool   // INT8
	_        [2]uint8
	table    int64 // offset of the format's rounding table
}

// Minifloat returns the rule of a format of 8 bits for a scale mode: the scale byte of a block
// whose largest magnitude has the FP32 bits a is the exponent field of a + roundUp, less emax.
// mantissa: 3 (E4M3) or 2 (E5M2); roundUp: below 2^23, its lower 16 bits all 0 or all 1.
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

// Integer returns the rule of MXINT8 for a scale mode, with roundUp as in Minifloat. All that an
// encoder takes from Scan are signs and scales.
func Integer(roundUp uint32) Rule {
	return Rule{roundUp: uint16(roundUp >> 16 << 1), largest: 127, integer: true}
}
