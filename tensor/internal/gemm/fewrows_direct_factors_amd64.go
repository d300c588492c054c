//go:build amd64 && !purego

package gemm

// Factors made from the scales of blocks, with which the AVX2 kernels for codes multiply.

import "unsafe"

// A factor is 2^(scale+factorBias-127), for scales of at most mostScale.
const (
	factorBias = 120
	mostScale  = 254 - factorBias
)

// factors converts scales to FP32 factors and notes the smallest and the largest scale. The result
// has the layout of scales but counts its columns in bytes, 4 per factor.
func (s *Scratch) factors(scales View, seen *notes) View {
	stride := 4 * scales.Cols
	v := strided(s.chunks.atLeast(stride*scales.Rows), scales.Rows, stride, stride, 1)
	rows, n := scales.Rows, scales.Cols
	if scales.RowStride == n { // rows follow one another without a gap
		rows, n = 1, scales.Rows*n
	}
	for i := range rows {
		dst, src, whole := unsafe.Add(v.Ptr, i*stride), unsafe.Add(scales.Ptr, i*scales.RowStride), n/16*16
		if whole > 0 {
			factorsAVX2(dst, src, whole/16, seen)
		}
		for j := whole; j < n; j++ {
			scale := *(*uint8)(unsafe.Add(src, j))
			seen.min[0], seen.max[0] = min(seen.min[0], scale), max(seen.max[0], scale)
			*(*uint32)(unsafe.Add(dst, 4*j)) = (uint32(scale) + factorBias) << 23
		}
	}
	return v
}
