package tensor

import "spmoe/tensor/internal/vec"

// Kernels on single FP32 rows, for packages that walk rows of their own. All slices of a call
// have one length. Every instruction tier gives the same bits.

// AddScaled sets dst += a·x.
func AddScaled(dst []float32, a float32, x []float32) { vec.AddScaled(dst, a, x) }

// Scale sets dst = a·x.
func Scale(dst []float32, a float32, x []float32) { vec.Scale(dst, a, x) }

// Dot returns the inner product of x and y.
func Dot(x, y []float32) float32 { return vec.Dot(x, y) }
