//go:build !purego

package gemm

// Packing for BFMMLA: four elements of k of each row at a time, which take two steps. Assembly
// handles four rows at a time and whole vectors, plain Go the tails.

import "unsafe"

// alongQuads8 packs up to eight rows, alongQuads12 up to twelve. They start with the last ones:
// surplus lanes lie where other rows of later steps go.
func alongQuads8(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongQuads(dst, src, offsets[:8], words, step)
}

func alongQuads12(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	alongQuads(dst, src, offsets[:12], words, step)
}

func alongQuads(dst, src unsafe.Pointer, offsets []int, words, step int) {
	for i := len(offsets) - 4; i >= 0; i -= 4 {
		if words >= 8 {
			packQuadsNEON(unsafe.Add(dst, 8*i), src, (*[4]int)(offsets[i:]), words/8, 2*step)
		}
		for k := words / 8 * 8; k < words; k += 4 { // in order: surplus lanes overlap the next step
			for r, offset := range offsets[i : i+4] {
				packQuad(unsafe.Add(dst, 8*(i+r)), unsafe.Add(src, offset), 2, k, words, step)
			}
		}
	}
}

func acrossQuads(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	whole := k / 4 * 4
	left := inFours(lanes, func(i int) {
		to, from := unsafe.Add(dst, 8*i), unsafe.Add(src, 2*i)
		if whole > 0 {
			zipQuadsNEON(to, from, stride, whole, 2*step)
		}
		for r := range 4 {
			packQuad(unsafe.Add(to, 8*r), unsafe.Add(from, 2*r), stride, whole, k, step)
		}
	})
	for i := range left {
		for at := 0; at < k; at += 4 {
			packQuad(unsafe.Add(dst, 8*i), unsafe.Add(src, 2*i), stride, at, k, step)
		}
	}
}

// packQuad packs up to four elements of a row from element k on, if there are any before n. Zeros
// fill the rest. Elements are stride bytes apart.
func packQuad(dst, src unsafe.Pointer, stride, k, n, step int) {
	if k >= n {
		return
	}
	var quad [4]uint16
	for e := range min(4, n-k) {
		quad[e] = *(*uint16)(unsafe.Add(src, (k+e)*stride))
	}
	*(*[4]uint16)(unsafe.Add(dst, k/2*step)) = quad
}
