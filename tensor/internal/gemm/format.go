package gemm

// The 8-bit element formats of OCP Microscaling, and what they decode to.

import (
	"fmt"
	"math"
	"sync"
)

// Format says what an 8-bit code means.
type Format uint8

// The formats, by OCP MX v1.0 section 5.3.
const (
	E4M3 Format = iota // sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f and 0xff are NaN, there is no infinity
	E5M2               // sign, 5 bits of exponent (bias 15), 2 of mantissa; infinities and NaNs as IEEE
	INT8               // two's complement in units of 1/64
)

func (f Format) String() string {
	switch f {
	case E4M3:
		return "e4m3"
	case E5M2:
		return "e5m2"
	case INT8:
		return "int8"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// values returns what each code decodes to.
func (f Format) values() *[256]float32 { return decoded[f]() }

var decoded = [...]func() *[256]float32{
	E4M3: sync.OnceValue(minifloats[E4M3].values),
	E5M2: sync.OnceValue(minifloats[E5M2].values),
	INT8: sync.OnceValue(func() *[256]float32 {
		var v [256]float32
		for code := range v {
			v[code] = float32(int8(code)) / 64
		}
		return &v
	}),
}

// minifloat is a format with a sign, exponent and mantissa of so many bits. The highest special codes of either sign are NaN or, if they
// are more than one, infinity (mantissa 0) and NaN.
type minifloat struct{ exponent, mantissa, special int }

var minifloats = [...]minifloat{E4M3: {4, 3, 1}, E5M2: {5, 2, 4}}

// bias is that of the exponent.
func (f minifloat) bias() int { return 1<<(f.exponent-1) - 1 }

// values decodes all codes.
func (f minifloat) values() *[256]float32 {
	var v [256]float32
	mantissa, bias := f.mantissa, f.bias()
	for code := range 128 {
		e, m := code>>mantissa, code&(1<<mantissa-1)
		x := math.Ldexp(float64(m), 1-bias-mantissa)
		if e > 0 {
			x = math.Ldexp(float64(m+1<<mantissa), e-bias-mantissa)
		}
		if code >= 128-f.special {
			x = math.NaN()
			if f.special > 1 && m == 0 {
				x = math.Inf(1)
			}
		}
		v[code], v[code+128] = float32(x), float32(math.Copysign(x, -1))
	}
	return &v
}

// scale is the value of an E8M0 byte: a power of two, or NaN for 255.
func scale(code uint8) float64 {
	if code == 255 {
		return math.NaN()
	}
	return math.Ldexp(1, int(code)-127)
}
