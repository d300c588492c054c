package vec

// The exponential function of one float32, which the tiers of the row kernels compute in the same
// way.

import "math"

// Constants of Exp. The polynomial for e**r - 1 - r on ±ln(2)/32 is 1.6e-9 off at most.
const (
	log2E = float32(math.Log2E)
	ln2   = float32(math.Ln2)
	c2    = 0.49998379
	c3    = 0.16666979

	// A sum with shifter is rounded to sixteenths, which its lowest four bits count.
	shifter = float32(3 << 18)

	// At -expMost the result has become 0, at expMost it is infinite, both by rounding.
	expMost = 104
)

// powers are 2**(i/16).
var powers = func() (p [16]float32) {
	for i := range p {
		p[i] = float32(math.Exp2(float64(i) / 16))
	}
	return p
}()

// Exp returns e**x: x = n·ln2 + r with n in sixteenths, a table for the fraction of n, a polynomial
// of r, and the whole part of n added to the exponent. It is 1.2 units in the last place off at
// most, and |x|/20 more since ln2 is rounded, a tenth of what the rounding of x itself may do.
func Exp(x float32) float32 {
	if x > expMost {
		x = expMost
	}
	if x < -expMost {
		x = -expMost
	}
	shifted := fma(x, log2E, shifter)
	r := fma(-(shifted - shifter), ln2, x)
	p := fma(fma(c3, r, c2), float32(r*r), r)
	bits := int32(math.Float32bits(shifted))
	power := powers[bits&15]
	p = fma(p, power, power)
	// 2**n may be no float32: scale in two factors, the first of which is exact.
	n := bits>>4 - int32(math.Float32bits(shifter))>>4
	half := n >> 1
	return float32(p*pow2(half)) * pow2(n-half)
}

// pow2 returns 2**n for n in the exponent range of normal numbers.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// fma returns a·b + c, rounded once if the result is a normal number or exact. The product is exact
// in float64, and rounding its sum with c to float64 before float32 is wrong only if that made a
// tie.
func fma(a, b, c float32) float32 {
	product := float64(a) * float64(b)
	sum := product + float64(c)
	const below = 1<<29 - 1 // the bits that float32 lacks
	if math.Float64bits(sum)&below == 1<<28 {
		sum = offTie(sum, product, float64(c))
	}
	return float32(sum)
}

// offTie moves the rounded sum of x and y one unit towards the exact one.
func offTie(sum, x, y float64) float64 {
	z := sum - x
	lost := (x - (sum - z)) + (y - z)
	if lost == 0 {
		return sum
	}
	return math.Nextafter(sum, math.Inf(int(math.Copysign(1, lost))))
}
