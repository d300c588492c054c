package vec

// The sigmoid function, and SwiGLU with its gradient.

// Sigmoid sets dst[i] = 1/(1 + exp(-x[i])).
func Sigmoid(dst, x []float32) { sigmoidRows(dst, x) }

// SwiGLU sets h[i] = silu(gate[i])·up[i], with silu(z) = z·sigmoid(z).
func SwiGLU(h, gate, up []float32) { swiGLURows(h, gate, up) }

// SwiGLUBackward sets the gradients of SwiGLU's inputs. dh is the gradient of its output.
func SwiGLUBackward(dgate, dup, dh, gate, up []float32) { swiGLUBackwardRows(dgate, dup, dh, gate, up) }

// SwiGLUBF16 is SwiGLU on bfloat16.
func SwiGLUBF16(h, gate, up []uint16) { swiGLURows16(h, gate, up) }

// SwiGLUBackwardBF16 is SwiGLUBackward on bfloat16.
func SwiGLUBackwardBF16(dgate, dup, dh, gate, up []uint16) {
	swiGLUBackwardRows16(dgate, dup, dh, gate, up)
}
