//go:build amd64 && !purego

package gemm

// Packing and rounding for AVX2, which has no masks for 16-bit words: assembly for whole vectors, plain Go for the ends.
// Steps are written in order: a store's surplus lanes may fall on the next step.

import (
	"math/bits"
	"unsafe"
)

func alongAVX2(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	if words >= 16 {
		packRowsAVX2(dst, src, offsets, words/16, step)
	}
	for k := words / 16 * 8; k < words/2; k++ {
		for r := range 8 {
			*(*uint32)(unsafe.Add(dst, 4*r+k*step)) = *(*uint32)(unsafe.Add(src, offsets[r]+4*k))
		}
	}
}

func alongSplitAVX2(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	if words >= 16 {
		packRowsSplitAVX2(dst, src, offsets, words/16, step)
	}
	for k := words / 16 * 16; k < words+words%2; k++ {
		for r := range 8 {
			x := float32(0)
			if from := k ^ 1; from < words { // the second of a pair goes first
				x = wideBF16(*(*uint16)(unsafe.Add(src, offsets[r]+2*from)))
			}
			*(*float32)(unsafe.Add(dst, 4*r+k*step)) = x
		}
	}
}

func acrossAVX2(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	n := bits.Len(uint(lanes))
	for i := 0; i < n; i += 8 {
		copyAVX2(unsafe.Add(dst, 4*i), unsafe.Add(src, 4*i), stride, k, step, (*[8]int32)(laneMasks[8-min(n-i, 8):]))
	}
}

// laneMasks holds, from 8-n on, a mask of n lanes.
var laneMasks = [16]int32{-1, -1, -1, -1, -1, -1, -1, -1}

func acrossSplitAVX2(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	n := bits.Len(uint(lanes))
	for i := 0; i < n; i += 8 {
		widenAVX2[min(n-i, 8)](unsafe.Add(dst, 4*i), unsafe.Add(src, 2*i), stride, k, step)
	}
}

var widenAVX2 = [9]func(dst, src unsafe.Pointer, stride, k, step int){
	nil, widen1AVX2, widen2AVX2, widen3AVX2, widen4AVX2, widen5AVX2, widen6AVX2, widen7AVX2, widen8AVX2,
}

// result is where a product goes: FP32 or BF16, with so many bytes an element.
type result struct {
	View
	elem int
}

// resultOf is out, of BF16, or sum if there is none.
func resultOf(sum, out View) result {
	if out.Ptr != nil {
		return result{out, 2}
	}
	return result{sum, 4}
}

// put makes sums columns of c, from j on.
func (c result) put(j int, sums View) {
	to := c.slice(c.elem, 0, j, sums.Rows, sums.Cols)
	if c.elem == 2 {
		roundRows(to, sums)
	} else {
		copyRows(to, sums)
	}
}

// roundRows rounds sums, of which out has as many columns or fewer.
func roundRows(out, sums View) {
	whole := out.Cols / 16 * 16
	for i := range out.Rows {
		dst, src := row[uint16](out, i), row[float32](sums, i)
		if whole > 0 {
			roundAVX2(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), whole/16)
		}
		for j := whole; j < len(dst); j++ {
			dst[j] = roundBF16(src[j])
		}
	}
}
