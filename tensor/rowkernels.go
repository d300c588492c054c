package tensor

import (
	"unsafe"

	"spmoe/tensor/internal/stream"
	"spmoe/tensor/internal/vec"
)

// Kernels on single rows, for packages with loops over rows of their own. All slices of a call have
// one length. Every instruction tier gives the same bits.

// AddScaled sets dst += a·x.
func AddScaled(dst []float32, a float32, x []float32) { vec.AddScaled(dst, a, x) }

// Scale sets dst = a·x.
func Scale(dst []float32, a float32, x []float32) { vec.Scale(dst, a, x) }

// Dot returns the inner product of x and y.
func Dot(x, y []float32) float32 { return vec.Dot(x, y) }

// ScaleBF16 sets dst = a·x, rounded to nearest even.
func ScaleBF16(dst []BFloat16, a float32, x []float32) { vec.ScaleBF16(words(dst), a, x) }

// Widen converts x to FP32, exactly.
func Widen(dst []float32, x []BFloat16) { vec.Widen(dst, words(x)) }

// Round sets dst to x, rounded to nearest even.
func Round(dst []BFloat16, x []float32) { vec.Round(words(dst), x) }

func words(x []BFloat16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.SliceData(x)), len(x))
}

// CopyStreaming copies src to dst past the caches. Both have the same length. It is for data that
// this core will not read again. Other cores may see the copy out of order until StreamingFence.
func CopyStreaming(dst, src []byte) { stream.Copy(dst, src) }

// StreamingFence makes the results of CopyStreaming visible before all later stores.
func StreamingFence() { stream.Fence() }

// SumRows sets dst to the sum over i of weights[i] times the BF16 row at rows[i], which has the
// length of dst. It sums in FP32 and in that order, row after row. Meanwhile it prefetches ahead,
// the rows of the next call. ahead has the length of rows.
func SumRows(dst []float32, rows, ahead []unsafe.Pointer, weights []float32) {
	stream.Sum(dst, rows, ahead, weights)
}
