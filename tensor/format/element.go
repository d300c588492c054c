// Package format defines the element formats of quantized matrices. An [Element] gives the value of
// each code of up to 8 bits, and the code nearest to a number. All packages that read or write
// codes use these definitions.
//
// Source of the built-in formats: OCP Microscaling Formats (MX) Specification v1.0, section 5.3.
package format

import (
	"math"
	"sync"
)

// MXBlock is the number of elements that share a scale in all formats of OCP MX.
const MXBlock = 32

// Element is a number format. It is a minifloat or a two's complement integer, which is a minifloat
// of one binade. Each format is created once and compared by its address. A code of fewer than 8
// bits is in the low bits of its byte.
type Element struct {
	name     string
	mantissa int   // explicit bits
	emin     int   // exponent of the smallest normal number and of subnormal numbers
	largest  uint8 // code of the largest finite number
	sign     uint8 // sign bit; 0: two's complement
	nan      uint8 // code of a positive NaN; largest if there is none
	infinity uint8 // code of infinity; 0 if there is none

	values func() *[256]float32
}

// The elements of OCP MX. E4M3 has one NaN of either sign and no infinity. E5M2 has both, as in
// IEEE 754.
var (
	E4M3 = Minifloat("e4m3", 4, 3, 1) // largest 448
	E5M2 = Minifloat("e5m2", 5, 2, 4) // largest 57344
	E2M3 = Minifloat("e2m3", 2, 3, 0) // largest 7.5
	E3M2 = Minifloat("e3m2", 3, 2, 0) // largest 28
	E2M1 = Minifloat("e2m1", 2, 1, 0) // largest 6
	INT8 = Integer("int8", 6)         // in units of 1/64; never encodes -128
)

// Minifloat returns a format with a sign, an exponent and a mantissa. Exponent and mantissa have at
// most 7 bits together. The highest special codes of either sign are not finite. If there is one,
// it is NaN. If there are several, the first is infinity and the others are NaN.
func Minifloat(name string, exponent, mantissa, special int) *Element {
	sign := uint8(1) << (exponent + mantissa)
	e := &Element{name: name, mantissa: mantissa, emin: 2 - 1<<(exponent-1), largest: sign - 1 - uint8(special), nan: sign - 1, sign: sign}
	if special > 1 {
		e.infinity = sign - uint8(special)
	}
	return e.tabled()
}

// Integer returns a format of 8 bits in two's complement, in units of 2^-fraction. Its lowest code
// is not used, so the range is symmetric.
func Integer(name string, fraction int) *Element {
	return (&Element{name: name, mantissa: fraction, emin: 6 - fraction, largest: 0x7f, nan: 0x7f}).tabled()
}

// tabled sets the table of e's values, which is computed at the first use.
func (e *Element) tabled() *Element {
	e.values = sync.OnceValue(func() *[256]float32 {
		t := new([256]float32)
		for code := range t {
			t[code] = e.Decode(uint8(code))
		}
		return t
	})
	return e
}

// String returns the name, such as "e4m3".
func (e *Element) String() string {
	if e == nil {
		return "no element format"
	}
	return e.name
}

// IsInteger reports whether codes are two's complement.
func (e *Element) IsInteger() bool { return e.sign == 0 }

// Bits returns the number of bits of a code.
func (e *Element) Bits() int {
	bits := 8
	for e.sign != 0 && e.sign < 1<<(bits-1) {
		bits--
	}
	return bits
}

// Mantissa returns the number of explicit mantissa bits. For an integer these are the bits after
// the binary point.
func (e *Element) Mantissa() int { return e.mantissa }

// MinExponent returns the exponent of the smallest normal number, which is 1 - bias.
func (e *Element) MinExponent() int { return e.emin }

// MaxExponent returns the exponent of the largest number, emax in the specification.
func (e *Element) MaxExponent() int { return math.Ilogb(float64(e.Max())) }

// Max returns the largest finite number.
func (e *Element) Max() float32 { return e.Decode(e.largest) }

// Largest returns the code of [Element.Max].
func (e *Element) Largest() uint8 { return e.largest }

// SignBit returns the sign bit of a code. It is 0 for integers.
func (e *Element) SignBit() uint8 { return e.sign }

// NaN returns the code of a NaN, or of the largest number if there is no NaN.
func (e *Element) NaN() uint8 { return e.nan }

// Infinity returns the code of infinity, or 0 if there is none.
func (e *Element) Infinity() uint8 { return e.infinity }

// Codes returns the number of codes.
func (e *Element) Codes() int { return 1 << e.Bits() }

// Values returns the value of each byte. Do not modify it.
func (e *Element) Values() *[256]float32 { return e.values() }

// Decode returns the value of a code. Bits above those of the format are ignored.
func (e *Element) Decode(code uint8) float32 {
	if e.IsInteger() {
		return float32(int8(code)) / float32(int(1)<<e.mantissa)
	}
	sign, magnitude := float32(1), code&(e.sign-1)
	if code&e.sign != 0 {
		sign = float32(math.Copysign(1, -1))
	}
	switch {
	case e.infinity != 0 && magnitude == e.infinity:
		return sign * float32(math.Inf(1))
	case magnitude > e.largest:
		return float32(math.NaN())
	}
	field, fraction := int(magnitude)>>e.mantissa, int(magnitude)&(1<<e.mantissa-1)
	if field > 0 {
		fraction |= 1 << e.mantissa
		field--
	}
	return sign * float32(math.Ldexp(float64(fraction), e.emin+field-e.mantissa))
}

// Encode returns the code of the number nearest to x, with ties to the even code. Larger numbers
// saturate. Subnormal numbers and the sign of zero are preserved. A NaN becomes NaN, or the largest
// number if the format has no NaN.
func (e *Element) Encode(x float32) uint8 {
	if x != x {
		return e.signed(e.nan, math.Float32bits(x))
	}
	var code [1]uint8
	e.EncodeScaled(code[:], []float32{x}, 1)
	return code[0]
}

// EncodeScaled sets codes to the codes of values times scale. The products are rounded to FP32
// first. None may be NaN.
//
// Adding 2^(e+23-mantissa) to a number of exponent e makes the FP32 adder round it to the format's
// grid. The low bits of the sum are then the number in units of the grid's step.
func (e *Element) EncodeScaled(codes []uint8, values []float32, scale float32) {
	const exponent, one, fraction = 0xff << 23, 1 << 23, 1<<23 - 1
	shift := 23 - e.mantissa
	smallest := uint32(127+e.emin) * one
	greatest := smallest + uint32(e.largest>>e.mantissa)*one
	codes = codes[:len(values)]
	for i, v := range values {
		bits := math.Float32bits(v * scale)
		own := min(max(bits&exponent, smallest), greatest)
		// Numbers beyond the greatest exponent saturate.
		magnitude := min(bits&^(1<<31), own|fraction)
		grid := own + uint32(shift)*one
		steps := math.Float32bits(math.Float32frombits(magnitude)+math.Float32frombits(grid)) - grid
		codes[i] = e.signed(uint8(min(steps+(own-smallest)>>(shift&31), uint32(e.largest))), bits)
	}
}

// EncodeStochastic sets codes to the codes of values, each rounded up or down at random. draws has
// a uniform number of 16 bits for each value. The upper neighbor is chosen if the draw plus the
// distance from the lower one, in units of 2^-16 of a step and rounded down, is at least 2^16.
// Larger numbers saturate. No value may be NaN.
func (e *Element) EncodeStochastic(codes []uint8, values []float32, draws []uint16) {
	const exponent, one, fraction, half = 0xff << 23, 1 << 23, 1<<23 - 1, 16
	shift := 23 - e.mantissa
	smallest := uint32(127+e.emin) * one
	greatest := smallest + uint32(e.largest>>e.mantissa)*one
	codes, draws = codes[:len(values)], draws[:len(values)]
	for i, v := range values {
		bits := math.Float32bits(v)
		own := min(max(bits&exponent, smallest), greatest)
		magnitude := math.Float32frombits(min(bits&^(1<<31), own|fraction))
		perStep := math.Float32frombits(uint32(254+half+e.mantissa)*one - own)
		steps := (uint32(magnitude*perStep) + uint32(draws[i])) >> half
		codes[i] = e.signed(uint8(min(steps+(own-smallest)>>(shift&31), uint32(e.largest))), bits)
	}
}

// signed gives a code the sign of the float32 with these bits. It has no branch, because signs are
// unpredictable.
func (e *Element) signed(code uint8, bits uint32) uint8 {
	negative := -uint8(bits >> 31)
	if e.sign == 0 {
		return (code ^ negative) - negative
	}
	return code | negative&e.sign
}
