package exact

import "math"

// FMA returns a·b + c, rounded once to nearest even.
//
// The product is exact in float64. Rounding the sum to float64 first is wrong only if that produced
// a tie, or for a subnormal result, which has fewer bits. Then the sum is rounded to odd.
func FMA(a, b, c float32) float32 {
	product := float64(a) * float64(b)
	sum := product + float64(c)
	const below = 1<<29 - 1 // the bits that float32 lacks
	bits := math.Float64bits(sum)
	if bits&below == 1<<28 || bits&1 == 0 && math.Abs(sum) < 0x1p-126 {
		sum = towardExact(sum, product, float64(c))
	}
	return float32(sum)
}

// towardExact moves the rounded sum of x and y one unit towards the exact sum.
func towardExact(sum, x, y float64) float64 {
	z := sum - x
	lost := (x - (sum - z)) + (y - z)
	if lost == 0 {
		return sum
	}
	return math.Nextafter(sum, math.Inf(int(math.Copysign(1, lost))))
}
