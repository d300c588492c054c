//go:build amd64 && !purego

package gemm

// Packing for AVX2, which has no masks for 16-bit words: assembly for whole vectors, plain Go for
// the tails. Steps are written in order, so that a store's surplus lanes may overlap the next step.

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

// laneMasks[8-n:] begins with a mask of n lanes.
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

// roundGroups rounds n (> 0) groups of 16 FP32 to BF16, to nearest even.
func roundGroups(dst, src unsafe.Pointer, n int) { roundAVX2(dst, src, n) }
