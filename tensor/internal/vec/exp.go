package vec

// The exponential function of one float32. The row kernels of all tiers compute it in the same way.

import (
	"math"

	"spmoe/tensor/exact"
)

// Constants of Exp. The polynomial for e**r - 1 - r on ±ln(2)/32 is off by at most 1.6e-9.
const (
	log2E = float32(math.Log2E)
	ln2   = float32(math.Ln2)
	c2    = 0.49998379
	c3    = 0.16666979

	// Adding shifter rounds a number to sixteenths. The lowest four bits of the sum count them.
	shifter = float32(3 << 18)

	// The result is 0 at -expMost and infinite at expMost, both by rounding.
	expMost = 104
)

// powers are 2**(i/16).
var powers = func() (p [16]float32) {
	for i := range p {
		p[i] = float32(math.Exp2(float64(i) / 16))
	}
	return p
}()

// Exp returns e**x. It splits x = n·ln2 + r, with n in sixteenths. A table gives the power for the
// fraction of n, a polynomial that for r. The whole part of n is added to the exponent.
//
// The result is off by at most 1.2 units in the last place. Rounding ln2 adds |x|/20 units. That is
// a tenth of what rounding x itself may cause.
func Exp(x float32) float32 {
	if x > expMost {
		x = expMost
	}
	if x < -expMost {
		x = -expMost
	}
	shifted := exact.FMA(x, log2E, shifter)
	r := exact.FMA(-(shifted - shifter), ln2, x)
	p := exact.FMA(exact.FMA(c3, r, c2), float32(r*r), r)
	bits := int32(math.Float32bits(shifted))
	power := powers[bits&15]
	p = exact.FMA(p, power, power)
	// 2**n may not be a float32, so scale by two factors. The first product is exact.
	n := bits>>4 - int32(math.Float32bits(shifter))>>4
	half := n >> 1
	return float32(p*pow2(half)) * pow2(n-half)
}

// pow2 returns 2**n for n in the exponent range of normal numbers.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }
