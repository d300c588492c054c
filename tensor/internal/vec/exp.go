package vec

// The exponential function of one float32, which the tiers of the row kernels compute in the same way.

import "math"

// Constants of Exp: ln 2 in two parts (the first with few bits, so that n·ln2Hi is exact).
const (
	log2E = 1.44269504088896341
	ln2Hi = 0.693359375
	ln2Lo = -2.12194440e-4

	// Adding magic = 1.5·2**23 rounds to the nearest integer in float32 arithmetic.
	magic = 12582912

	// Outside these the result would be subnormal (returned as 0) or infinite.
	expMin = -87.33654
	expMax = 88.72283
)

// Exp returns e**x within two units in the last place: x = n·ln2 + r, a polynomial of r,
// and n added to the exponent. Results below 2**-126 are 0.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expMin:
		return 0
	case x > expMax:
		return float32(math.Inf(1))
	}
	t := float32(x*log2E) + magic
	n := t - magic
	r := x - float32(n*ln2Hi)
	r -= float32(n * ln2Lo)
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(p*r*r) + r + 1
	// n = 128 is reached just below expMax: scale in two factors so that none overflows.
	half := int32(n) >> 1
	return p * pow2(half) * pow2(int32(n)-half)
}

// pow2 returns 2**n for n in the exponent range of normal numbers.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }
