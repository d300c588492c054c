// Package vec holds the row kernels of package tensor: loops over float32 and bfloat16 slices.
//
// All slices of a call have the same length unless a comment says otherwise, any length and alignment. A destination may
// be the very same slice as an input; slices that overlap otherwise are not allowed.
//
// Every tier gives the same bits (which NaN aside): products are rounded before they are added, which the conversions
// float32(a*b) force on compilers that would fuse the two, and sums follow one fixed split into lanes.
package vec

//go:generate go run ./asm

// chunk is the most elements that one kernel call gets. Assembly cannot be preempted, so a longer slice is worked off in
// calls of the exported function to itself: each enters through a stack check, where the garbage collector can stop it.
// At 10 GB/s AdamW, which moves the most bytes an element, takes under 50 microseconds for a chunk.
const chunk = 16 << 10

// Widen sets dst to the exact values of the bfloat16 numbers in src.
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for len(src) > chunk {
		Widen(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	active.widen(dst, src)
}

// Round sets dst to src rounded to bfloat16, to nearest with ties to even; subnormals are kept, a NaN becomes quiet.
func Round(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for len(src) > chunk {
		Round(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	active.round(dst, src)
}

// Add sets dst[i] = x[i] + y[i].
func Add(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for len(dst) > chunk {
		Add(dst[:chunk], x[:chunk], y[:chunk])
		dst, x, y = dst[chunk:], x[chunk:], y[chunk:]
	}
	active.add(dst, x, y)
}

// AddScaled sets dst[i] += a·x[i].
func AddScaled(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		AddScaled(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.addScaled(dst, a, x)
}

// Scale sets dst[i] = a·x[i].
func Scale(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		Scale(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.scale(dst, a, x)
}

// MulScaled sets dst[i] = a·x[i]·y[i].
func MulScaled(dst []float32, a float32, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for len(dst) > chunk {
		MulScaled(dst[:chunk], a, x[:chunk], y[:chunk])
		dst, x, y = dst[chunk:], x[chunk:], y[chunk:]
	}
	active.mulScaled(dst, a, x, y)
}

// AddMulScaled sets dst[i] += a·x[i]·y[i].
func AddMulScaled(dst []float32, a float32, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for len(dst) > chunk {
		AddMulScaled(dst[:chunk], a, x[:chunk], y[:chunk])
		dst, x, y = dst[chunk:], x[chunk:], y[chunk:]
	}
	active.addMulScaled(dst, a, x, y)
}

// SwiGLU sets h[i] = silu(gate[i])·up[i], with silu(z) = z·sigmoid(z).
func SwiGLU(h, gate, up []float32) {
	gate, up = gate[:len(h)], up[:len(h)]
	for len(h) > chunk {
		SwiGLU(h[:chunk], gate[:chunk], up[:chunk])
		h, gate, up = h[chunk:], gate[chunk:], up[chunk:]
	}
	active.swiGLU(h, gate, up)
}

// SwiGLUBackward sets the gradients of SwiGLU's inputs from dh, that of its output.
func SwiGLUBackward(dgate, dup, dh, gate, up []float32) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for len(dh) > chunk {
		SwiGLUBackward(dgate[:chunk], dup[:chunk], dh[:chunk], gate[:chunk], up[:chunk])
		dgate, dup, dh, gate, up = dgate[chunk:], dup[chunk:], dh[chunk:], gate[chunk:], up[chunk:]
	}
	active.swiGLUBackward(dgate, dup, dh, gate, up)
}

// SoftmaxBackward sets ds[i] = a·p[i]·(dp[i] - delta): the gradient of the scores of a
// softmax row p, where delta is the inner product of p and dp and a scales the scores.
func SoftmaxBackward(ds []float32, a float32, p, dp []float32, delta float32) {
	p, dp = p[:len(ds)], dp[:len(ds)]
	for len(ds) > chunk {
		SoftmaxBackward(ds[:chunk], a, p[:chunk], dp[:chunk], delta)
		ds, p, dp = ds[chunk:], p[chunk:], dp[chunk:]
	}
	active.softmaxBackward(ds, a, delta, p, dp)
}
