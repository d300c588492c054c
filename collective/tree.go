package collective

// Sums over ranks as a balanced binary tree: the hot loops of gradient reduction. Four ranks at a
// time are summed in registers. More would not help: their buffers often begin at the same offset
// of a page, and a first-level cache has few ways for such lines.

import "math/bits"

// sumPiece is the number of elements of the right half of a tree that are held while the left half
// is summed, if no loop computes both.
const sumPiece = 512

// sumTerms sets dst to the sum over the terms of their len(dst) elements from lo.
func sumTerms[T Number](dst []T, terms [][]byte, lo int) {
	part := func(j int) []T { return elements[T](terms[j], lo, len(dst)) }
	switch len(terms) {
	case 1:
		copy(dst, part(0))
	case 2:
		add2(dst, part(0), part(1))
	case 4:
		add4(dst, part(0), part(1), part(2), part(3))
	default:
		half := leftHalf(len(terms))
		var right [sumPiece]T
		for at := 0; at < len(dst); at += sumPiece {
			left := dst[at:min(at+sumPiece, len(dst))]
			sumTerms(left, terms[:half], lo+at)
			sumTerms(right[:len(left)], terms[half:], lo+at)
			add2(left, left, right[:len(left)])
		}
	}
}

// leftHalf returns the number of terms, of n > 1, in the left half of the tree: the largest power
// of two below n.
func leftHalf(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// add2 sets dst to a + b; dst may be a.
func add2[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for len(dst) >= 8 && len(a) >= 8 && len(b) >= 8 {
		d, x, y := (*[8]T)(dst), (*[8]T)(a), (*[8]T)(b)
		d[0] = x[0] + y[0]
		d[1] = x[1] + y[1]
		d[2] = x[2] + y[2]
		d[3] = x[3] + y[3]
		d[4] = x[4] + y[4]
		d[5] = x[5] + y[5]
		d[6] = x[6] + y[6]
		d[7] = x[7] + y[7]
		dst, a, b = dst[8:], a[8:], b[8:]
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// add4 sets dst to (a + b) + (c + d).
func add4[T Number](dst, a, b, c, d []T) {
	n := len(dst)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	for i := range dst {
		dst[i] = (a[i] + b[i]) + (c[i] + d[i])
	}
}
