//go:build !purego

package gemm

// Packing for NEON: assembly for four rows at a time and whole vectors, plain Go for the tails.

import (
	"math/bits"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

func alongNEON(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongFour(dst, src, (*[4]int)(offsets[:]), words, step)
}

// along8NEON packs the upper four rows first. Their surplus lanes lie where the lower four rows of
// later steps go.
func along8NEON(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongFour(unsafe.Add(dst, 16), src, (*[4]int)(offsets[4:]), words, step)
	alongFour(dst, src, (*[4]int)(offsets[:]), words, step)
}

func alongFour(dst, src unsafe.Pointer, offsets *[4]int, words, step int) {
	if words >= 8 {
		packRowsNEON(dst, src, offsets, words/8, step)
	}
	packTail(dst, src, offsets[:], words/8*4, words, step)
}

func alongSplitNEON(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongSplitFour(dst, src, (*[4]int)(offsets[:]), words, step)
}

func along8SplitNEON(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongSplitFour(unsafe.Add(dst, 16), src, (*[4]int)(offsets[4:]), words, step)
	alongSplitFour(dst, src, (*[4]int)(offsets[:]), words, step)
}

func alongSplitFour(dst, src unsafe.Pointer, offsets *[4]int, words, step int) {
	if words >= 8 {
		packRowsSplitNEON(dst, src, offsets, words/8, step)
	}
	splitTail(dst, src, offsets[:], words/8*8, words, step)
}

// inFours calls f for four rows at a time. The last four overlap the previous ones if need be. It
// returns the rows that are left, if there are fewer than four.
func inFours(lanes int, f func(i int)) (left int) {
	n := bits.Len(uint(lanes))
	if n < 4 {
		return n
	}
	for i := 0; i < n; i += 4 {
		f(min(i, n-4))
	}
	return 0
}

func acrossNEON(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	left := inFours(lanes, func(i int) { copyNEON(unsafe.Add(dst, 4*i), unsafe.Add(src, 4*i), stride, k, step) })
	for i := range left {
		for l := range k {
			*(*float32)(unsafe.Add(dst, 4*i+l*step)) = *(*float32)(unsafe.Add(src, 4*i+l*stride))
		}
	}
}

func acrossSplitNEON(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	left := inFours(lanes, func(i int) { widenNEON(unsafe.Add(dst, 4*i), unsafe.Add(src, 2*i), stride, k, step) })
	for i := range left {
		for l := range k + k%2 {
			x := float32(0)
			if from := l ^ 1; from < k { // the second of a pair goes first
				x = vec.FromBF16(*(*uint16)(unsafe.Add(src, 2*i+from*stride)))
			}
			*(*float32)(unsafe.Add(dst, 4*i+l*step)) = x
		}
	}
}

// roundGroups rounds n (> 0) groups of 16 FP32 to BF16, to nearest even.
func roundGroups(dst, src unsafe.Pointer, n int) { roundNEON(dst, src, n) }
