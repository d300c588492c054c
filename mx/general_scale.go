package mx

// The scales of blocks in any format.

import (
	"math"

	"spmoe/tensor/format"
)

// leastAmax is the smallest block maximum for an FP32 scale. Smaller maxima are raised to it, as in
// DeepSeek's kernels (TileKernels).
const leastAmax = 1e-4

// scale returns the scale of a block whose largest magnitude is amax. factor multiplies the
// elements of the block. The scale is NaN if amax is NaN or infinite. An E4M3 scale is multiplied
// by encode before it is rounded.
//
// The formulas are those of the reference implementations, in FP32. For E4M3 that is NVFP4 in
// Transformer Engine. For FP32 it is DeepSeek's TileKernels.
func (g *quantizeArgs) scale(amax, encode float32) (s storedScale, factor float32) {
	switch g.t.Format.Scale {
	case ScaleE4M3:
		if amax-amax != 0 {
			return storedScale{code: format.E4M3.NaN()}, 0
		}
		s.code = format.E4M3.Encode(min(amax*(encode*(1/g.largest)), largestE4M3))
		return s, elementFactor(s.code, encode)
	case ScaleFP32, ScalePow2:
		return g.wideScale(amax)
	case ScaleNone:
		return s, encode
	default:
		s.code = g.rule.scale(math.Float32bits(amax))
		factor = math.Float32frombits(powerOfTwo(max(254-int(s.code), 0)))
		if g.t.Format.Shrink {
			factor *= 0.75
		}
		return s, factor
	}
}

// wideScale is scale for FP32 scales.
func (g *quantizeArgs) wideScale(amax float32) (s storedScale, factor float32) {
	if amax-amax != 0 {
		return storedScale{value: float32(math.NaN())}, 0
	}
	amax = max(amax, leastAmax)
	s.value, factor = amax/g.largest, g.largest/amax
	if g.t.Format.Scale == ScalePow2 {
		s.value = math.Float32frombits((math.Float32bits(s.value) + fraction) &^ fraction)
		factor = 1 / s.value
	}
	return s, factor
}

// largestE4M3 is the largest E4M3 scale.
var largestE4M3 = format.E4M3.Max()

// elementFactor returns the multiplier of the elements of a block with an E4M3 scale.
func elementFactor(code uint8, encode float32) float32 {
	return min(1/(format.E4M3.Values()[code]*(1/encode)), math.MaxFloat32)
}

// hasGroupScale says whether GroupScale may differ from 1.
func (t Tensor) hasGroupScale() bool { return t.Amax.Valid() || t.Format.Shrink }

// leastTensorAmax is the smallest maximum of a tensor whose blocks have no scales. Smaller maxima
// are raised to it, as in torchao.
const leastTensorAmax = 1e-12

// encodeScale returns the multiplier of a group's block scales before they are rounded, or of its
// elements if blocks have no scales. It is 1 if the format has no group scales.
func (t Tensor) encodeScale(group int) float32 {
	if !t.Amax.Valid() {
		return 1
	}
	amax := t.Amax.F32()[group]
	if t.Format.Scale == ScaleNone {
		return t.Format.Max() / max(amax, leastTensorAmax)
	}
	encode := min(largestE4M3*t.Format.Max()/amax, math.MaxFloat32)
	if amax == 0 || encode == 0 {
		return 1
	}
	return encode
}
