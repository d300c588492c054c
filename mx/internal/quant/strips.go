package quant

// The kernels for strips of BF16. They make MXFP8 in one direction or both. A strip is a
// row of adjacent 32 by 32 tiles.

import "unsafe"

// StripTiles is the number of tiles that fit in a first-level cache.
const StripTiles = 8

// A Strip is up to StripTiles tiles and the destination of their output.
type Strip struct {
	Format       *Format
	X            unsafe.Pointer // BF16
	Stride       int            // bytes between rows
	Rows         int            // rows to write, 1 to 32; X must have 32
	Tiles        int
	RowCodes     unsafe.Pointer // codes with blocks along rows
	RowStride    int            // bytes between rows of codes
	RowScales    unsafe.Pointer // one per row and tile
	RowScaleStep int            // bytes between rows of scales
	ColCodes     unsafe.Pointer // codes with blocks along columns
	ColStride    int
	ColScales    unsafe.Pointer // 32 per tile
	//lint:ignore U1000 only the assembly uses it
	bias [blockSize]uint16 // of the rows of a tile: subtracted from magnitudes
	//lint:ignore U1000 only the assembly uses it
	scales [StripTiles][2 * blockSize]uint8 // of a tile's rows and columns
}

// Quantize writes the codes and scales of blocks along rows, along columns, or both. It reports
// whether the strip is odd, and then writes nothing. An odd strip has a block with a NaN or an
// infinity, or one whose magnitudes are all below 2^-87 and not all zero.
func (s *Strip) Quantize(rows, cols bool) (odd bool) {
	switch {
	case scanStripAVX2(s):
		return true
	case rows && cols:
		encodeStripBothAVX2(s)
	case rows:
		encodeStripRowsAVX2(s)
	default:
		encodeStripColsAVX2(s)
	}
	return false
}

// Format is an 8-bit format and a scale mode in the form that the strip kernels need.
type Format struct {
	// The scale byte of a block is the exponent field of its largest magnitude + roundUp, less
	// emax.
	roundUp, emax [16]uint16

	// tieMask has the bits of a magnitude that rounding drops, and the lowest bit that it keeps.
	tieMask  [16]uint16
	tie      [16]uint16 // their value where rounding half up is wrong
	round    [16]uint16 // multiplier that rounds half up to the bits kept
	exponent [16]uint16 // bias of the format's exponents
	// factors multiply the significands of subnormal codes, by exponent.
	factors [2][16]uint8
	// places is added to the exponent of a magnitude to give the index of its factor.
	places    [16]uint16
	largest   [32]uint8 // largest code
	subnormal [32]uint8 // largest subnormal code
	// mantissa is the bits of a code's mantissa. dropped is the bits that rounding drops of BF16's
	// 7. point is the fraction bits of a significand times its factor.
	mantissa uint64
	dropped  uint64
	point    uint64
	_        uint64
	half     [16]uint16 // just under one half, in such a product
}

// MinifloatFormat returns the format with the parameters of Minifloat.
func MinifloatFormat(mantissa, emax int, largest uint8, roundUp uint32) Format {
	const (
		point     = 9
		exponents = 4 // those whose factor is not 0
	)
	f := Format{mantissa: uint64(mantissa), dropped: uint64(7 - mantissa), point: point}
	fill(f.roundUp[:], uint16(roundUp>>16))
	fill(f.emax[:], uint16(emax))
	fill(f.tieMask[:], 2<<f.dropped-1)
	fill(f.tie[:], 1<<f.dropped>>1)
	fill(f.round[:], 1<<(15-f.dropped))
	fill(f.exponent[:], 1<<(6-mantissa)-1)
	fill(f.subnormal[:], 1<<mantissa-1)
	fill(f.largest[:], largest)
	// Significands become numbers with point fraction bits.
	for e := range exponents {
		f.factors[0][e] = 1 << (mantissa + 1 - (exponents - 1 - e))
	}
	f.factors[1] = f.factors[0]
	fill(f.places[:], 1<<15+exponents-1)
	fill(f.half[:], 1<<(point-1)-1)
	return f
}

func fill[T any](s []T, with T) {
	for i := range s {
		s[i] = with
	}
}
