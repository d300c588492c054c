package vec

// The exponential function of one float32, which the tiers of the row kernels compute in the same way.

import "math"

// Constants of Exp: ln 2 in two parts, and a polynomial of degree 6 for e**r - 1 - r on ±ln(2)/2, which is 3.1e-9 off at most
// (in proportion to e**r; a minimax fit in float64, then rounded).
const (
	log2E = 1.44269504088896341
	ln2Hi = float32(0.693147180559945309)
	ln2Lo = float32(0.693147180559945309 - float64(ln2Hi))

	c2 = 4.9999994e-1
	c3 = 1.6666521e-1
	c4 = 4.166839e-2
	c5 = 8.368717e-3
	c6 = 1.3814599e-3

	// At -expMost the result has become 0, at expMost it is infinite, both by rounding.
	expMost = 104
)

// Exp returns e**x within one and a half units in the last place: x = n·ln2 + r, a polynomial of r,
// and n added to the exponent.
func Exp(x float32) float32 {
	if x > expMost {
		x = expMost
	}
	if x < -expMost {
		x = -expMost
	}
	n := float32(math.RoundToEven(float64(float32(x * log2E))))
	r := fma(-n, ln2Lo, fma(-n, ln2Hi, x))
	r2 := float32(r * r)
	p := fma(c6, r2, fma(c5, r, c4))
	p = fma(p, r2, fma(c3, r, c2))
	p = 1 + fma(p, r2, r)
	// 2**n may be no float32: scale in two factors, the first of which is exact.
	half := int32(n) >> 1
	return float32(p*pow2(half)) * pow2(int32(n)-half)
}

// pow2 returns 2**n for n in the exponent range of normal numbers.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// fma returns a·b + c, rounded once if the result is a normal number or exact. The product is exact in float64, and rounding
// its sum with c to float64 before float32 is wrong only if that made a tie.
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
