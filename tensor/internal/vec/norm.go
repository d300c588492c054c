package vec

// The row kernels of RMSNorm and its gradient.

import "math"

// SplitLen returns the length of n weights in the order of Split.
func SplitLen(n int) int { return (n + 31) &^ 31 }

// Split writes weights in the order that the kernels on bfloat16 rows need. Of every 32 weights,
// the 16 of even index come first, then those of odd index. Zeros pad the last 32. dst:
// [SplitLen(len(w))].
func Split(dst, w []float32) {
	dst = dst[:SplitLen(len(w))]
	for len(w) > chunk {
		Split(dst[:chunk], w[:chunk])
		dst, w = dst[chunk:], w[chunk:]
	}
	clear(dst[len(w)&^31:])
	active.split(dst, w)
}

// defaultNaN returns a if it is a number, and otherwise the NaN whose lower half is zero.
func defaultNaN(a float32) float32 {
	if a != a {
		return math.Float32frombits(0xffc00000)
	}
	return a
}

// MulScaled sets dst[i] = a·x[i]·y[i].
func MulScaled(dst []float32, a float32, x, y []float32) { mulScaledRows(dst, a, x, y) }

// NormWeightGrad adds a·dy[i]·x[i] to dw[i], and returns the sum of dy[i]·x[i]·w[i], in 64 lanes.
func NormWeightGrad(dw []float32, a float32, dy, x, w []float32) float32 {
	return normWeightGradRows(dw, a, dy, x, w)
}

// NormInputGrad sets dx[i] = a·dy[i]·w[i] + b·x[i], or adds that to dx[i].
func NormInputGrad(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32) {
	normInputGradRows(dx, add, a, dy, w, b, x)
}

// MulScaledBF16 is MulScaled on bfloat16. y is float32 in the order of Split.
func MulScaledBF16(dst []uint16, a float32, x []uint16, y []float32) {
	mulScaledRows16(dst, defaultNaN(a), x, y)
}

// NormWeightGradBF16 is NormWeightGrad on bfloat16. w and dw are float32.
func NormWeightGradBF16(dw []float32, a float32, dy, x []uint16, w []float32) float32 {
	return normWeightGradRows16(dw, a, dy, x, w)
}

// NormInputGradBF16 is NormInputGrad on bfloat16. w is float32 in the order of Split.
func NormInputGradBF16(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16) {
	normInputGradRows16(dx, add, defaultNaN(a), dy, w, defaultNaN(b), x)
}
