package vec

// The exponentials and gradients of softmax rows.

// ExpSum sets dst[i] = exp(a·x[i] - shift) and returns the sum of dst, in 16 lanes.
func ExpSum(dst []float32, a float32, x []float32, shift float32) float32 {
	return expSumRows(dst, a, x, shift)
}

// ExpSumBF16 is ExpSum for a bfloat16 dst. x is float32. The sum is that of the values before
// rounding.
func ExpSumBF16(dst []uint16, a float32, x []float32, shift float32) float32 {
	return expSumRows16(dst, a, x, shift)
}

// SoftmaxBackward recomputes a softmax row p from its scores s: p[i] = exp(a·s[i] - lse). It also
// sets the gradient of the scores, ds[i] = a·p[i]·(dp[i] - delta), where delta is the inner product
// of p and dp.
func SoftmaxBackward(p, ds []float32, a float32, s, dp []float32, lse, delta float32) {
	softmaxBackwardRows(p, ds, a, s, dp, lse, delta)
}

// SoftmaxBackwardBF16 is SoftmaxBackward for bfloat16 p and ds. s and dp are float32.
func SoftmaxBackwardBF16(p, ds []uint16, a float32, s, dp []float32, lse, delta float32) {
	softmaxBackwardRows16(p, ds, a, s, dp, lse, delta)
}
