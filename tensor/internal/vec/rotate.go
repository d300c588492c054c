package vec

// Rotate applies rotary position embedding in place, in plain Go. Every pair of neighbors (u, v)
// becomes (u·c - v·s, u·s + v·c). Each pair has its own cosine c and sine. s is the sine times
// sign, and a sign of -1 rotates back.
//
// cos, sin: [rows, pairs]; row i of x begins at x[i·stride].
func Rotate(x []float32, stride int, cos, sin []float32, pairs int, sign float32) {
	rotate(rotateGeneric, x, stride, cos, sin, pairs, sign)
}

// RotateBF16 is Rotate on bfloat16; cos and sin are float32.
func RotateBF16(x []uint16, stride int, cos, sin []float32, pairs int, sign float32) {
	rotate(active.rotate16, x, stride, cos, sin, pairs, sign)
}

// rotate calls a kernel for some rows at a time.
func rotate[T float32 | uint16](kernel func(x []T, stride, count, pairs int, cos, sin []float32, sign float32), x []T, stride int,
	cos, sin []float32, pairs int, sign float32) {
	n := max(chunk/max(pairs, 1), 1)
	for len(cos) > n*pairs {
		rotate(kernel, x, stride, cos[:n*pairs], sin, pairs, sign)
		x, cos, sin = x[n*stride:], cos[n*pairs:], sin[n*pairs:]
	}
	if len(cos) > 0 {
		n = len(cos) / pairs
		kernel(x[:(n-1)*stride+2*pairs], stride, n, pairs, cos, sin[:len(cos)], sign)
	}
}
