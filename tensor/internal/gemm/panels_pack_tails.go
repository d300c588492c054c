//go:build (amd64 || arm64) && !purego

package gemm

// The tails of rows that are packed along k, in plain Go, where assembly handles whole vectors.
// Steps are written in order, so that a store's surplus lanes may overlap the next step.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// packTail packs dwords from dword k on.
func packTail(dst, src unsafe.Pointer, offsets []int, k, words, step int) {
	for ; k < words/2; k++ {
		for r, offset := range offsets {
			*(*uint32)(unsafe.Add(dst, 4*r+k*step)) = *(*uint32)(unsafe.Add(src, offset+4*k))
		}
	}
}

// splitTail converts BF16 to steps of FP32 from an even element k on. The second of a pair goes
// first. An odd last element follows a 0.
func splitTail(dst, src unsafe.Pointer, offsets []int, k, words, step int) {
	for ; k < words+words%2; k++ {
		for r, offset := range offsets {
			x := float32(0)
			if from := k ^ 1; from < words {
				x = vec.FromBF16(*(*uint16)(unsafe.Add(src, offset+2*from)))
			}
			*(*float32)(unsafe.Add(dst, 4*r+k*step)) = x
		}
	}
}
