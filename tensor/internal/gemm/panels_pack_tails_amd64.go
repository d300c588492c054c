//go:build amd64 && !purego

package gemm

// Packing for AVX2, which has no masks for 16-bit words: assembly for whole vectors, plain Go for
// the tails.

import (
	"math/bits"
	"unsafe"
)

func alongAVX2(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	if words >= 16 {
		packRowsAVX2(dst, src, offsets, words/16, step)
	}
	packTail(dst, src, offsets[:8], words/16*8, words, step)
}

func alongSplitAVX2(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	if words >= 16 {
		packRowsSplitAVX2(dst, src, offsets, words/16, step)
	}
	splitTail(dst, src, offsets[:8], words/16*16, words, step)
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
