package vec

// The sigmoid function, and SwiGLU with its gradient.

// Sigmoid sets dst[i] = 1/(1 + exp(-x[i])).
func Sigmoid(dst, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		Sigmoid(dst[:chunk], x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.sigmoid(dst, x)
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

// SwiGLUBackward sets the gradients of SwiGLU's inputs. dh is the gradient of its output.
func SwiGLUBackward(dgate, dup, dh, gate, up []float32) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for len(dh) > chunk {
		SwiGLUBackward(dgate[:chunk], dup[:chunk], dh[:chunk], gate[:chunk], up[:chunk])
		dgate, dup, dh, gate, up = dgate[chunk:], dup[chunk:], dh[chunk:], gate[chunk:], up[chunk:]
	}
	active.swiGLUBackward(dgate, dup, dh, gate, up)
}

// SwiGLUBF16 is SwiGLU on bfloat16.
func SwiGLUBF16(h, gate, up []uint16) {
	gate, up = gate[:len(h)], up[:len(h)]
	for len(h) > chunk {
		SwiGLUBF16(h[:chunk], gate[:chunk], up[:chunk])
		h, gate, up = h[chunk:], gate[chunk:], up[chunk:]
	}
	active.swiGLU16(h, gate, up)
}

// SwiGLUBackwardBF16 is SwiGLUBackward on bfloat16.
func SwiGLUBackwardBF16(dgate, dup, dh, gate, up []uint16) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for len(dh) > chunk {
		SwiGLUBackwardBF16(dgate[:chunk], dup[:chunk], dh[:chunk], gate[:chunk], up[:chunk])
		dgate, dup, dh, gate, up = dgate[chunk:], dup[chunk:], dh[chunk:], gate[chunk:], up[chunk:]
	}
	active.swiGLUBackward16(dgate, dup, dh, gate, up)
}
