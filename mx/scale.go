package mx

// Block scales: E8M0 powers of two, and the rules that choose one from a block's largest magnitude.

import (
	"fmt"
	"math"

	"spmoe/tensor/format"
)

// NaNScale is the E8M0 byte that makes every element of its block NaN.
const NaNScale = 255

// DecodeScale returns the value of an E8M0 byte: 2^(b-127), or NaN for NaNScale. Byte 0 is 2^-127
// and not zero.
func DecodeScale(b uint8) float32 {
	if b == NaNScale {
		return float32(math.NaN())
	}
	return math.Float32frombits(powerOfTwo(int(b)))
}

// powerOfTwo returns the bits of 2^(biased-127) as FP32; 2^-127 is subnormal.
func powerOfTwo(biased int) uint32 {
	if biased == 0 {
		return 1 << 22
	}
	return uint32(biased) << 23
}

// ScaleMode is the rule that chooses the scale of a block. The zero value is RCEIL.
type ScaleMode uint8

// The scale modes of torchao for E8M0. Each of the other scale types has one rule of its own. With
// amax the largest magnitude of a block, max the largest value of the format and emax the exponent
// of max, the scale is 2 to the power of:
const (
	// ceil(log2(amax·(1/max))), both products rounded to FP32, as in cuBLAS; never saturates
	RCEIL ScaleMode = iota
	// floor(log2(amax)) - emax, the rule of OCP MX v1.0; the largest elements may saturate
	FLOOR
	CEIL // ceil(log2(amax)) - emax
	EVEN // like FLOOR, after amax is rounded to the format's mantissa bits
)

var modeNames = [...]string{RCEIL: "rceil", FLOOR: "floor", CEIL: "ceil", EVEN: "even"}

// ScaleModes lists every mode.
func ScaleModes() []ScaleMode { return []ScaleMode{RCEIL, FLOOR, CEIL, EVEN} }

// ParseScaleMode returns the mode that String names.
func ParseScaleMode(name string) (ScaleMode, error) {
	for _, m := range ScaleModes() {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q is not an MX scale mode: use one of %v", name, ScaleModes())
}

// String returns the name of the mode in lower case.
func (m ScaleMode) String() string {
	if int(m) >= len(modeNames) {
		return fmt.Sprintf("ScaleMode(%d)", uint8(m))
	}
	return modeNames[m]
}

const (
	fraction = 1<<23 - 1  // mantissa bits of FP32
	infinity = 0x7f800000 // bits of FP32 infinity; those of NaNs are greater
)

// A rule is a scale mode for one element format.
type rule struct {
	mode       ScaleMode
	reciprocal float32 // 1 / the format's largest value
	emax       int
	roundUp    uint32
}

func (m ScaleMode) rule(e *format.Element) rule {
	return rule{mode: m, reciprocal: 1 / e.Max(), emax: e.MaxExponent(), roundUp: m.roundUp(e)}
}

// scale returns the E8M0 byte for a block whose largest magnitude has the bits amax. It is NaNScale
// for an infinity or NaN and 0 for a block of zeros. The largest scale of a number is 254. int8 and
// e2m1 reach it near the largest FP32 and saturate.
func (r *rule) scale(amax uint32) uint8 {
	if amax >= infinity {
		return NaNScale
	}
	if r.mode == RCEIL {
		return rceil(math.Float32frombits(amax) * r.reciprocal)
	}
	// The exponent field of a subnormal is not its logarithm. That matters only to CEIL for int8,
	// which then gives 2^-126.
	return uint8(min(max(int((amax+r.roundUp)>>23)-r.emax, 0), NaNScale-1))
}

// rceil returns the E8M0 byte of the smallest power of two that is at least d.
func rceil(d float32) uint8 {
	bits := math.Float32bits(d)
	if bits <= powerOfTwo(0) {
		return 0
	}
	return uint8(min((bits+fraction)>>23, NaNScale-1))
}

// roundUp returns the addend for the bits of a magnitude that makes its exponent field, less emax,
// the byte of the scale. For RCEIL this reproduces the rounded product except in the lowest scales:
// amax/max crosses a power of two where the mantissa of amax exceeds that of max.
func (m ScaleMode) roundUp(e *format.Element) uint32 {
	switch m {
	case RCEIL:
		return fraction - math.Float32bits(e.Max())&fraction
	case CEIL:
		return fraction
	case EVEN:
		return 1 << (22 - e.Mantissa())
	default:
		return 0
	}
}
