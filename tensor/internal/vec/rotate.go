package vec

// Rotate turns the rows of rotary position embedding in place: every pair of neighbours (u, v)
// becomes (u·c - v·s, u·s + v·c) with its own cosine c, and sine s times sign (-1 turns back).
//
// cos, sin: [rows, pairs]; row i of x begins at x[i·stride].
func Rotate(x []float32, stride int, cos, sin []float32, pairs int, sign float32) {
	n := rotateRows(pairs)
	for len(cos) > n*pairs {
		Rotate(x, stride, cos[:n*pairs], sin, pairs, sign)
		x, cos, sin = x[n*stride:], cos[n*pairs:], sin[n*pairs:]
	}
	if len(cos) > 0 {
		n = len(cos) / pairs
		active.rotate(x[:(n-1)*stride+2*pairs], stride, n, pairs, cos, sin[:len(cos)], sign)
	}
}

// RotateBF16 is Rotate on bfloat16; cos and sin are float32.
func RotateBF16(x []uint16, stride int, cos, sin []float32, pairs int, sign float32) {
	n := rotateRows(pairs)
	for len(cos) > n*pairs {
		RotateBF16(x, stride, cos[:n*pairs], sin, pairs, sign)
		x, cos, sin = x[n*stride:], cos[n*pairs:], sin[n*pairs:]
	}
	if len(cos) > 0 {
		n = len(cos) / pairs
		active.rotate16(x[:(n-1)*stride+2*pairs], stride, n, pairs, cos, sin[:len(cos)], sign)
	}
}

// rotateRows is how many rows one kernel call gets.
func rotateRows(pairs int) int { return max(chunk/max(pairs, 1), 1) }
