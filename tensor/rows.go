package tensor

import (
	"unsafe"

	"spmoe/tensor/internal/stream"
	"spmoe/tensor/internal/vec"
)

// Kernels on single rows, for packages that walk rows of their own. All slices of a call
// have one length. Every instruction tier gives the same bits.

// AddScaled sets dst += a·x.
func AddScaled(dst []float32, a float32, x []float32) { vec.AddScaled(dst, a, x) }

// Scale sets dst = a·x.
func Scale(dst []float32, a float32, x []float32) { vec.Scale(dst, a, x) }

// Dot returns the inner product of x and y.
func Dot(x, y []float32) float32 { return vec.Dot(x, y) }

// AddScaledBF16 sets dst += a·x.
func AddScaledBF16(dst []float32, a float32, x []BFloat16) { vec.AddScaledBF16(dst, a, words(x)) }

// ScaleBF16 sets dst = a·x, rounded.
func ScaleBF16(dst []BFloat16, a float32, x []float32) { vec.ScaleBF16(words(dst), a, x) }

// Widen sets dst = x.
func Widen(dst []float32, x []BFloat16) { vec.Widen(dst, words(x)) }

// Round sets dst = x, rounded to nearest even.
func Round(dst []BFloat16, x []float32) { vec.Round(words(dst), x) }

func words(x []BFloat16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.SliceData(x)), len(x))
}

// CopyStreaming copies src to dst, of the same length, past the caches: for what this core will not
// read again. The copy is visible to other cores in order only after StreamingFence.
func CopyStreaming(dst, src []byte) { stream.Copy(dst, src) }

// StreamingFence makes what was copied by CopyStreaming visible before anything that is stored
// later.
func StreamingFence() { stream.Fence() }

// SumRows sets dst to the sum over i of weights[i] times the BF16 row at rows[i], of the length of
// dst, in FP32 and in that order: the bits of AddScaledBF16 row after row. Meanwhile it fetches the
// rows ahead, as many, which the next call will want.
func SumRows(dst []float32, rows, ahead []unsafe.Pointer, weights []float32) {
	stream.Sum(dst, rows, ahead, weights)
}
