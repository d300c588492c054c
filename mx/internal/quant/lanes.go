package quant

// The kernels for any format. They carry out the definition of quantization on several FP32 at a
// time.

import (
	"math/bits"
	"unsafe"

	"spmoe/tensor/format"
)

// Panels are FP32, in rows of whole blocks without gaps.
const blockSize = format.MXBlock

// Group is the number of blocks that AmaxRows processes at a time.
const Group = 8

// AmaxRows sets amax to the largest magnitude of each block of x, as FP32 bits. The blocks are
// contiguous. amax has one or more whole groups.
func AmaxRows(amax, x []float32) {
	laneAmaxRows(data(amax), data(x[:len(amax)*blockSize]), len(amax)/Group)
}

// AmaxCols sets amax to the largest magnitude of each column of a panel, as FP32 bits. rows is
// greater than 0. amax has one or more whole blocks.
func AmaxCols(amax, x []float32, rows int) {
	laneAmaxCols(data(amax), data(x[:rows*len(amax)]), rows, len(amax)/blockSize)
}

// EncodeRows writes the codes of the one or more contiguous blocks of x. Each block has one factor.
func EncodeRows(codes []uint8, x, factors []float32, g *Grid) {
	n := len(codes) / blockSize
	laneEncodeRows(data(codes), data(x[:len(codes)]), data(factors[:n]), n, g)
}

// EncodeCols is EncodeRows with one factor per element.
func EncodeCols(codes []uint8, x, factors []float32, g *Grid) {
	laneEncodeCols(data(codes), data(x[:len(codes)]), data(factors[:len(codes)]), len(codes)/blockSize, g)
}

// DecodeRows sets one or more whole blocks to the values of the codes times the scale of the block.
// A NaN is 0x7fc00000.
func DecodeRows(dst []float32, codes []uint8, scales []float32, d *Decoder) {
	n := len(dst) / blockSize
	laneDecodeRows(data(dst), data(codes[:len(dst)]), data(scales[:n]), n, d)
}

// DecodeCols is DecodeRows with one scale per element.
func DecodeCols(dst []float32, codes []uint8, scales []float32, d *Decoder) {
	laneDecodeCols(data(dst), data(codes[:len(dst)]), data(scales[:len(dst)]), len(dst)/blockSize, d)
}

func data[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// Grid is a format in the form that these kernels need.
type Grid struct {
	largest  uint32 // bits of the format's largest value
	smallest uint32 // bits of its smallest normal value
	// step turns an exponent field into the power of two whose addition rounds to the format's
	// grid.
	step  uint32
	_     uint32
	shift uint64 // from the mantissa of FP32 to the format's

	bias [blockSize / 2]uint16 // exponent field of smallest, at its position in a code
	// For a negative element: the bits to flip in its code, and then the value to subtract.
	sign, subtract [blockSize]uint8
}

// NewGrid returns the grid of a format: its mantissa bits, the exponent of its smallest normal
// value, and the FP32 bits of its largest value. sign is the sign bit of a code. 0 means that
// negative codes are in two's complement.
func NewGrid(mantissa, emin int, largest uint32, sign uint8) Grid {
	const one = 1 << 23
	shift := 23 - mantissa
	g := Grid{largest: largest, smallest: uint32(127+emin) * one, step: uint32(shift) * one, shift: uint64(shift)}
	for i := range g.bias {
		g.bias[i] = uint16(127+emin) << mantissa
	}
	for i := range g.sign {
		g.sign[i] = sign
		if sign == 0 {
			g.sign[i], g.subtract[i] = 0xff, 0xff
		}
	}
	return g
}

// Decoder is a format in the form that DecodeRows and DecodeCols need.
type Decoder struct {
	magnitude uint32 // mask of the magnitude in a code sign-extended to 32 bits
	sign      uint32 // sign bit, after signShift
	infinity  int32  // magnitude of infinity
	numbers   int32  // magnitudes above it are NaNs
	bias      int32  // FP32 exponent field of the format's smallest value
	_         int32
	mantissa  uint64 // bits; 32 if there is no exponent
	signShift uint64
}

// NewDecoder returns the decoder of a format: its mantissa bits, the exponent of its smallest
// normal value, and its sign bit. The sign bit is 0 for two's complement. Magnitudes above numbers
// are NaNs. infinity is the magnitude of infinity, or 0 if there is none.
func NewDecoder(mantissa, emin int, sign, infinity, numbers uint8) Decoder {
	const never = 1<<31 - 1
	d := Decoder{magnitude: 1<<32 - 1, infinity: never, numbers: never, bias: int32(127 + emin - mantissa), mantissa: 32}
	if sign == 0 {
		return d
	}
	d.magnitude, d.sign, d.mantissa, d.signShift = uint32(sign)-1, 1<<31, uint64(mantissa), uint64(24+bits.LeadingZeros8(sign))
	if infinity != 0 {
		d.infinity = int32(infinity)
	}
	d.numbers = int32(numbers)
	return d
}
