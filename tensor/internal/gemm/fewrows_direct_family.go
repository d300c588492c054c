package gemm

// What the kernels of direct products want of their operands.

import (
	"unsafe"

	"spmoe/tensor/format"
)

// directFamily is the kernels by the rows of a and how many rows of b each takes at once.
type directFamily struct {
	kernels []func(*direct)
	columns func(rows int) int

	elem int // bytes of an element of b
	unit int // elements of a row that make a step
	// run is how many elements of a row are multiplied at a time: a's part of them leaves room for
	// the rows of b in the first level of cache.
	run func(height int) int

	vector int // bytes that 32 elements of a take
	put    putVectors

	whole bool // kernels take whole steps of BF16: rests of rows are copied, codes decoded to where there is room behind them

	tables map[*format.Element]func() *directCodes // by element: with what kernels decode codes; nil if they do not

	// factors makes of scales, in the place of bytes, what kernels want instead, and notes the
	// least and the most. nil: scales.
	factors   func(s *Scratch, scales View, met *notes) View
	mostScale uint8         // above which there is no factor
	wider     *directFamily // what then multiplies
}

// putVectors puts steps times 32 BF16 of a row of a at dst, step bytes apart.
type putVectors func(dst, src unsafe.Pointer, steps, step int)

// copyVectors is a putVectors for kernels that take BF16.
func copyVectors(dst, src unsafe.Pointer, steps, step int) {
	for i := range steps {
		*(*[64]byte)(unsafe.Add(dst, i*step)) = *(*[64]byte)(unsafe.Add(src, 64*i))
	}
}

// newDirectCodes makes tables that are looked up for codes but those whose double less 16 is less
// than rare.
func newDirectCodes(l *lookup, rare uint8) *directCodes {
	c := &directCodes{codeTables: l.codeTables, top: l.top + l.bias - words(7<<7)}
	for i := range c.rare {
		c.rare[i] = rare
	}
	return c
}
