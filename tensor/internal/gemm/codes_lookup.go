package gemm

// Tables for decoding: linear maps of bits and the scales with which a format decodes exactly.

import (
	"math"
	"math/bits"
	"sync"

	"spmoe/tensor/format"
)

// codeTables holds the bytes of the BF16 number |x|·2^(top-127), indexed by the low 7 bits of the
// code of x. The high byte has the sign bit set unless x is 0. The low byte has bit 0 set if x is
// not finite.
type codeTables struct{ high, low [128]uint8 }

// lookup holds the tables with which the assembly decodes.
type lookup struct {
	codeTables
	// The highest scale that leaves every code in the range of BF16, minus bias. It is stored in
	// two 16-bit words at the position of the exponent.
	top uint32
	// In the same form: the scale at which a code has the exponent that BF16 reads in its bits.
	bias uint32

	// Matrices for GF2P8AFFINEQB. The first two give the bytes of a BF16 with the sign, exponent
	// and mantissa of a normal code. otherBits gives a number that is at most mostOther for codes
	// that are not normal, and above it for those that are.
	lowBits, highBits, otherBits uint64
	mostOther                    uint8

	minScale, maxScale uint8 // all decoded elements are exact and normal between these scales
	element            *format.Element

	decodeAlong, decodeAcross func(*decoding)
}

// newLookup returns a function that builds a lookup on its first call.
func newLookup(f *format.Element, along, across func(*decoding)) func() *lookup {
	return sync.OnceValue(func() *lookup {
		l := tables(f)
		l.decodeAlong, l.decodeAcross = along, across
		return l
	})
}

func tables(f *format.Element) *lookup {
	values := f.Values()
	largest := float32(0)
	for _, x := range values {
		if x > largest && !math.IsInf(float64(x), 0) {
			largest = x
		}
	}
	top := 127 - math.Ilogb(float64(largest)) + 127
	l := &lookup{minScale: uint8(1 - math.Ilogb(float64(values[1]))), maxScale: uint8(top), element: f}
	l.normalBits(f)
	l.top = words(top<<7) - l.bias
	for code, x := range values[1:128] {
		bits := math.Float32bits(float32(math.Ldexp(float64(x), top-127)))
		l.high[code+1], l.low[code+1] = uint8(bits>>24)|0x80, uint8(bits>>16)
		if bits>>23 == 255 {
			l.low[code+1] |= 1
		}
	}
	return l
}

// normalBits sets the fields that decode normal codes.
func (l *lookup) normalBits(f *format.Element) {
	mantissa, special := f.Mantissa(), int(f.Largest())+1 // the first code that is not a number
	l.bias = words((1 - f.MinExponent()) << 7)
	place := func(code uint8) int { return int(code&0x7f) << (7 - mantissa) }
	l.lowBits = bitMatrix(func(code uint8) uint8 { return uint8(place(code)) })
	l.highBits = bitMatrix(func(code uint8) uint8 { return code&0x80 | uint8(place(code)>>8) })
	// Mantissas stay below 2^mantissa, and special codes map to the numbers from there on. Every
	// exponent bit except the highest moves up by one to make room.
	one := func(bit int) uint8 {
		if bit < mantissa {
			return 1 << bit
		}
		return 2 << bit
	}
	highest := uint8(1) << mantissa
	for bit := range 6 {
		if special>>bit&1 == 1 {
			highest ^= one(bit)
		}
	}
	l.otherBits = bitMatrix(func(code uint8) uint8 {
		switch bit := bits.TrailingZeros8(code); bit {
		case 7:
			return 0
		case 6:
			return highest
		default:
			return one(bit)
		}
	})
	l.mostOther = uint8(1<<mantissa + 127 - special)
}

// words returns x twice, as 16-bit words.
func words(x int) uint32 { return uint32(x)<<16 | uint32(x) }

// bitMatrix returns the matrix with which GF2P8AFFINEQB computes f. f must be linear over the bits
// of a code.
func bitMatrix(f func(code uint8) uint8) (m uint64) {
	for in := range 8 {
		image := f(1 << in)
		for out := range 8 {
			m |= uint64(image>>out&1) << (8*(7-out) + in)
		}
	}
	return m
}
