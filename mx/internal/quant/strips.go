package quant

// The kernels for strips of BF16 that make MXFP8 or MXINT8: tiles of 32 by 32, one beside the
// other, in both directions or one. Only a tier with Lanes may run them.

import "unsafe"

// StripTiles is how many tiles a first-level cache holds.
const StripTiles = 8

// A Strip is up to StripTiles tiles, and where their output goes.
type Strip struct {
	Format       *Format
	X            unsafe.Pointer // BF16
	Stride       int            // bytes from row to row
	Rows         int            // rows to write, 1 to 32; there must be 32
	Tiles        int
	scales       unsafe.Pointer // of each tile: of 32 rows, of 32 columns
	RowCodes     unsafe.Pointer // codes with blocks along rows
	RowStride    int            // bytes from one row of codes to the next
	RowScales    unsafe.Pointer // one a row and tile
	RowScaleStep int            // bytes from one row of scales to the next
	ColCodes     unsafe.Pointer // codes with blocks along columns
	ColStride    int
	ColScales    unsafe.Pointer // 32 a tile
	//lint:ignore U1000 only the assembly uses it
	bias [blockSize]uint16 // of the rows of a tile: what is subtracted from magnitudes
}

// A StripScratch is what the steps of a strip leave for each other.
type StripScratch struct {
	amax   [2 * blockSize * StripTiles]float32
	scales [2 * blockSize * StripTiles]uint8
}

// Quantize writes the codes and scales of blocks along rows, along columns, or both. It reports
// whether the strip is odd and has been left alone: a block holds a NaN, an infinity, or only
// magnitudes under 2^-87 that are not all zero.
func (s *Strip) Quantize(g *Grid, t *StripScratch, rows, cols bool) (odd bool) {
	if scanStripAVX2(data(t.amax[:]), s.X, s.Stride, s.Tiles) {
		return true
	}
	scalesAVX2(data(t.scales[:]), data(t.amax[:]), s.Tiles*2*blockSize/Group, g)
	s.scales = data(t.scales[:])
	switch integer := s.Format.integer; {
	case rows && cols && integer:
		encodeStripINT8BothAVX2(s)
	case rows && cols:
		encodeStripBothAVX2(s)
	case rows && integer:
		encodeStripINT8RowsAVX2(s)
	case rows:
		encodeStripRowsAVX2(s)
	case integer:
		encodeStripINT8ColsAVX2(s)
	default:
		encodeStripColsAVX2(s)
	}
	return false
}

// Format is a format of 8 bits as strips want it.
type Format struct {
	tieMask   [16]uint16   // bits of a magnitude that rounding takes away, and the last that it leaves
	tie       [16]uint16   // what they are where rounding half up is wrong
	round     [16]uint16   // multiplier that rounds half up to the bits that stay
	exponent  [16]uint16   // bias of the format's exponents
	factors   [2][16]uint8 // of the significands of subnormal codes, by exponent
	places    [16]uint16   // what brings the exponent of a magnitude to the place of its factor
	largest   [32]uint8    // code
	subnormal [32]uint8    // largest subnormal code
	mantissa  uint64       // bits that a code has, dropped of BF16's 7, and after the point of a significand times its factor
	dropped   uint64
	point     uint64
	_         uint64
	half      [16]uint16 // less than half, in such a product
	integer   bool
}

// MinifloatFormat returns the format with these mantissa bits, 3 (E4M3) or 2 (E5M2), and this
// largest code.
func MinifloatFormat(mantissa int, largest uint8) Format {
	const point = 9
	f := Format{mantissa: uint64(mantissa), dropped: uint64(7 - mantissa)}
	fill(f.tieMask[:], 2<<f.dropped-1)
	fill(f.tie[:], 1<<f.dropped>>1)
	fill(f.round[:], 1<<(15-f.dropped))
	fill(f.exponent[:], 1<<(6-mantissa)-1)
	fill(f.subnormal[:], 1<<mantissa-1)
	f.fixedPoint(point, 4, point-1-int(f.dropped))
	fill(f.largest[:], largest)
	return f
}

// IntegerFormat returns INT8 with this largest code.
func IntegerFormat(largest uint8) Format {
	const point = 8
	f := Format{mantissa: 7, integer: true}
	f.fixedPoint(point, 8, point-1)
	fill(f.largest[:], largest)
	return f
}

// fixedPoint sets how significands become numbers with so many bits after the point. The last of
// the exponents that do not give 0 shifts them left by most.
func (f *Format) fixedPoint(point uint64, exponents, most int) {
	for e := range exponents {
		f.factors[0][e] = 1 << (most - (exponents - 1 - e))
	}
	f.factors[1] = f.factors[0]
	f.point = point
	fill(f.places[:], uint16(1<<15+exponents-1))
	fill(f.half[:], 1<<(point-1)-1)
}

func fill[T any](s []T, with T) {
	for i := range s {
		s[i] = with
	}
}
