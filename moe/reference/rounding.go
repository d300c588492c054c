package reference

import (
	"math"
	"math/rand/v2"
)

// Format is a number format. A greater one holds all values of a smaller one, as BF16 and FP16 do
// for results of mixed operands.
type Format int

const (
	Exact Format = iota // float64: nothing is rounded
	BF16                // 8 bits of mantissa
	FP16                // 11 bits
	FP32                // 24 bits
)

// Way says after which operations results are rounded.
type Way int

const (
	EveryOp    Way = iota // after each operation, as eager code stores them
	KernelEnds            // at the ends of kernels, as fused code stores them; inside, FP32
)

// Rounding says which results are rounded, and to which format. The zero value rounds nothing.
// Gradients are rounded where the forward results are. What a family's code computes in FP32 is
// rounded to FP32.
type Rounding struct {
	Format Format // of activations and weights, unless Of names another
	Way    Way
	Jitter uint64 // not 0: inputs are moved by up to half a unit of Format, at random from this seed
	// Of returns the format of a port or a parameter. nil: Format for all.
	Of       func(name string) Format
	Autocast Format                    // not Exact: products cast their operands to it, as torch.autocast does
	TF32     bool                      // products round their FP32 operands to 10 bits of mantissa
	Recipe   func(path string) *Recipe // of a linear layer whose products are quantized; nil: of none
	Ties     [2]float64                // of both operands of such products: 1, 0 or -1, see [Cast]
}

// Round returns x in the format, rounded to nearest even. Overflow gives an infinity.
func (f Format) Round(x float64) float64 {
	switch f {
	case FP32:
		return float64(float32(x))
	case BF16:
		return bf16(x)
	case FP16:
		return roundBits(x, 10, -14, 65504)
	}
	return x
}

func bf16(x float64) float64 {
	bits := math.Float32bits(float32(x))
	if bits&0x7f800000 != 0x7f800000 { // finite
		bits = (bits + 0x7fff + bits>>16&1) &^ 0xffff
	}
	return float64(math.Float32frombits(bits))
}

// roundAll rounds values in place.
func (f Format) roundAll(values []float64) {
	switch f {
	case Exact:
	case BF16: // without a call per value: most values of a step are of this format
		for i, x := range values {
			values[i] = bf16(x)
		}
	default:
		for i, x := range values {
			values[i] = f.Round(x)
		}
	}
}

// Holds reports whether the format has all values.
func (f Format) Holds(values []float64) bool {
	for _, x := range values {
		if f.Round(x) != x && x == x {
			return false
		}
	}
	return true
}

// roundBits rounds to a mantissa of some bits, with subnormals below 2^least and infinity above
// most.
func roundBits(x float64, bits, least int, most float64) float64 {
	exp := int(math.Float64bits(x)>>52&0x7ff) - 1023 // |x| in [2^exp, 2^(exp+1))
	unit := math.Float64frombits(uint64(max(exp, least)-bits+1023) << 52)
	y := math.RoundToEven(x/unit) * unit
	if math.Abs(y) > most {
		return math.Copysign(math.Inf(1), x)
	}
	return y
}

// jitter returns values moved by up to half a unit of the format.
func (f Format) jitter(values []float64, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 81))
	bits := map[Format]int{BF16: 7, FP16: 10, FP32: 23}[f]
	moved := make([]float64, len(values))
	for i, x := range values {
		_, exp := math.Frexp(x)
		if x != 0 {
			moved[i] = x + (rng.Float64()-0.5)*math.Ldexp(1, exp-1-bits)
		}
	}
	return moved
}
