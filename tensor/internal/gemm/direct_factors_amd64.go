//go:build amd64 && !purego

package gemm

// What direct kernels for codes on AVX2 multiply with, made of the scales of blocks, and what they have met.

import "unsafe"

// A factor is 2^(scale+factorBias-127), if the scale is not beyond mostScale.
const (
	factorBias = 120
	mostScale  = 254 - factorBias
)

// note takes over what kernels for AVX2 have met: the least and the most of scales, and of codes twice the most.
func (n *notes) note(bounds *[2][8]uint32) {
	for i := range bounds[0] {
		n.min[i], n.max[i] = uint8(bounds[0][i]), uint8(bounds[1][i])
	}
	for i, most := range n.bad {
		n.bad[i] = 0
		if most == 2*0x7f {
			n.bad[i] = 1
		}
	}
}

// factors makes of scales, in the place of bytes, the factors that kernels want.
func (s *Scratch) factors(scales View) View {
	b := &s.calls.bounds
	stride := 4 * scales.Cols
	v := strided(s.chunks.atLeast(stride*scales.Rows), scales.Rows, stride, stride, 1)
	rows, n := scales.Rows, scales.Cols
	if scales.RowStride == n { // one row behind the other
		rows, n = 1, scales.Rows*n
	}
	for i := range rows {
		dst, src := unsafe.Add(v.Ptr, i*stride), unsafe.Add(scales.Ptr, i*scales.RowStride)
		if whole := n / 8; whole > 0 {
			factorsAVX2(dst, src, whole, b)
		}
		for j := n / 8 * 8; j < n; j++ {
			scale := uint32(*(*uint8)(unsafe.Add(src, j)))
			b[0][0], b[1][0] = min(b[0][0], scale), max(b[1][0], scale)
			*(*uint32)(unsafe.Add(dst, 4*j)) = (scale + factorBias) << 23
		}
	}
	return v
}

// noBounds are the bounds of scales before any was met: 1.
var noBounds = [2][8]uint32{{127, 127, 127, 127, 127, 127, 127, 127}, {127, 127, 127, 127, 127, 127, 127, 127}}
