package mx

// The element formats: what a code of 8 or fewer bits means, and which code stands nearest to a number.

import (
	"fmt"
	"math"
)

// Format is an element format. The zero value is E4M3.
type Format uint8

// The element formats of OCP MX v1.0, section 5.3. The minifloats are named by their exponent and mantissa bits; a code
// of fewer than 8 bits lies in the low bits of its byte.
const (
	E4M3 Format = iota // MXFP8, without infinities; largest value 448
	E5M2               // MXFP8, largest finite value 57344
	E2M3               // MXFP6, largest value 7.5
	E3M2               // MXFP6, largest value 28
	E2M1               // MXFP4, largest value 6
	INT8               // MXINT8: two's complement, in units of 1/64; -128 is never made
)

// minifloat describes a format from which everything else about it follows.
type minifloat struct {
	name     string
	mantissa int   // explicit mantissa bits
	emin     int   // exponent of the smallest normal value, and of the subnormals
	largest  uint8 // code of the largest finite value
	sign     uint8 // sign bit; INT8 has none, it negates the code
	nan      uint8 // a NaN code, positive; largest if the format has none
	infinity uint8 // code of infinity; 0 if the format has none
}

// INT8 is a minifloat of one binade: its values lie below 2, all on the grid of the subnormals.
var minifloats = [...]minifloat{
	E4M3: {name: "e4m3", mantissa: 3, emin: -6, largest: 0x7e, sign: 0x80, nan: 0x7f},
	E5M2: {name: "e5m2", mantissa: 2, emin: -14, largest: 0x7b, sign: 0x80, nan: 0x7f, infinity: 0x7c},
	E2M3: {name: "e2m3", mantissa: 3, emin: 0, largest: 0x1f, sign: 0x20, nan: 0x1f},
	E3M2: {name: "e3m2", mantissa: 2, emin: -2, largest: 0x1f, sign: 0x20, nan: 0x1f},
	E2M1: {name: "e2m1", mantissa: 1, emin: 0, largest: 0x07, sign: 0x08, nan: 0x07},
	INT8: {name: "int8", mantissa: 6, emin: 0, largest: 0x7f, nan: 0x7f},
}

// Formats lists every format.
func Formats() []Format { return []Format{E4M3, E5M2, E2M3, E3M2, E2M1, INT8} }

// ParseFormat returns the format that String names.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats() {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%q is not an MX element format: use one of %v", name, Formats())
}

func (f Format) String() string {
	if int(f) >= len(minifloats) {
		return fmt.Sprintf("Format(%d)", uint8(f))
	}
	return minifloats[f].name
}

// Max returns the largest finite value.
func (f Format) Max() float32 { return f.Decode(minifloats[f].largest) }

// maxExponent returns floor(log2(Max)): emax of the specification.
func (f Format) maxExponent() int { return math.Ilogb(float64(f.Max())) }

// Codes returns the number of codes.
func (f Format) Codes() int {
	if f == INT8 {
		return 256
	}
	return 2 * int(minifloats[f].sign)
}

// Encode returns the code of the value nearest to x, ties to the even code. Larger values saturate; subnormals and the
// sign of zero are kept. A NaN becomes NaN, or the largest value where the format has no NaN.
func (f Format) Encode(x float32) uint8 {
	p := &minifloats[f]
	if x != x {
		return p.signed(p.nan, math.Float32bits(x))
	}
	var code [1]uint8
	p.encode(code[:], []float32{x}, 1)
	return code[0]
}

// encode sets codes to those of values times scale, a power of two, none of them NaN. Adding 2^(e+23-mantissa) to a number
// of exponent e makes the FP32 adder itself round it to the format's grid, and leaves the multiple of the grid's step in
// the low bits of the sum.
func (p *minifloat) encode(codes []uint8, values []float32, scale float32) {
	const exponent, one = 0xff << 23, 1 << 23
	shift := 23 - p.mantissa
	smallest := uint32(127+p.emin) * one
	greatest := smallest + uint32(p.largest>>p.mantissa)*one
	codes = codes[:len(values)]
	for i, v := range values {
		bits := math.Float32bits(v * scale)
		e := min(max(bits&exponent, smallest), greatest)
		magnitude := min(bits&^(1<<31), e|fraction) // beyond the greatest exponent anything saturates
		grid := e + uint32(shift)*one
		steps := math.Float32bits(math.Float32frombits(magnitude)+math.Float32frombits(grid)) - grid
		codes[i] = p.signed(uint8(min(steps+(e-smallest)>>(shift&31), uint32(p.largest))), bits)
	}
}

// signed gives a code the sign of the float32 with these bits; without a branch, for signs cannot be predicted.
func (p *minifloat) signed(code uint8, bits uint32) uint8 {
	negative := -uint8(bits >> 31)
	if p.sign == 0 {
		return (code ^ negative) - negative
	}
	return code | negative&p.sign
}

// Decode returns the value of a code. Bits above the format's own are ignored.
func (f Format) Decode(code uint8) float32 {
	p := &minifloats[f]
	if f == INT8 {
		return float32(int8(code)) / float32(int(1)<<p.mantissa)
	}
	sign, magnitude := float32(1), code&(p.sign-1)
	if code&p.sign != 0 {
		sign = float32(math.Copysign(1, -1))
	}
	switch {
	case p.infinity != 0 && magnitude == p.infinity:
		return sign * float32(math.Inf(1))
	case magnitude > p.largest:
		return float32(math.NaN())
	}
	field, fraction := int(magnitude)>>p.mantissa, int(magnitude)&(1<<p.mantissa-1)
	if field > 0 {
		fraction |= 1 << p.mantissa
		field--
	}
	return sign * float32(math.Ldexp(float64(fraction), p.emin+field-p.mantissa))
}

// values returns the value of every byte.
func (f Format) values() (t [256]float32) {
	for code := range t {
		t[code] = f.Decode(uint8(code))
	}
	return t
}
