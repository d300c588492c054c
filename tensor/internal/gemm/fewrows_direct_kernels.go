package gemm

// The kernels of direct products and what they require of their operands.

import (
	"unsafe"

	"spmoe/tensor/format"
)

// directKernels holds the kernels, indexed by the rows of a. columns is the number of rows of b
// that each takes at once.
type directKernels struct {
	kernels []func(*direct)
	columns func(rows int) int

	// strided kernels fetch to L2 lines at any distance. The others fetch adjacent lines.
	strided bool

	elem int // bytes of an element of b
	unit int // elements of a row per step
	// run returns the elements of a row that are multiplied at a time. a's part of them leaves room
	// in L1 for the rows of b.
	run func(height int) int

	vector int // bytes for 32 elements of a
	put    putVectors

	// The kernels take whole steps of BF16 only. Row ends are copied to padded buffers, and codes
	// are decoded to such buffers.
	whole bool

	// Decoding tables of the kernels, by element. Nil if the kernels do not decode.
	tables map[*format.Element]func() *directCodes

	// factors converts scales to FP32 factors, with which the kernels multiply. It notes the
	// smallest and the largest scale. Nil: the kernels take scales.
	factors   func(s *Scratch, scales View, seen *notes) View
	mostScale uint8          // the largest scale that has a factor
	wider     *directKernels // kernels for larger scales
}

// putVectors stores steps vectors of 32 BF16 from a row of a at dst, step bytes apart.
type putVectors func(dst, src unsafe.Pointer, steps, step int)

// copyVectors is the putVectors of kernels that take BF16.
func copyVectors(dst, src unsafe.Pointer, steps, step int) {
	for i := range steps {
		*(*[64]byte)(unsafe.Add(dst, i*step)) = *(*[64]byte)(unsafe.Add(src, 64*i))
	}
}

// newDirectCodes returns tables for l. Codes are looked up unless twice the code minus 16 is below
// rare.
func newDirectCodes(l *lookup, rare uint8) *directCodes {
	c := &directCodes{codeTables: l.codeTables, top: l.top + l.bias - words(7<<7)}
	for i := range c.rare {
		c.rare[i] = rare
	}
	return c
}
