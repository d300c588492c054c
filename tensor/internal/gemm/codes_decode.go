package gemm

// Decoding block-scaled operands to BF16. It works chunk by chunk, while they are packed.

import (
	"unsafe"

	"spmoe/tensor/format"
)

// decoders maps an element format to its decoder. Formats without an entry are decoded in plain Go.
type decoders map[*format.Element]func() *lookup

// both reports whether a and b can be decoded while they are packed into panels.
func (d decoders) both(a, b Scaled) (x, y operand, ok bool) {
	x, okX := d.operand(a)
	y, okY := d.operand(b)
	return x, y, okX && okY
}

// operand requires codes and scales in the same memory order.
func (d decoders) operand(m Scaled) (o operand, ok bool) {
	lookup, ok := d[m.Element]
	if !ok {
		return o, false
	}
	along := m.Codes.rowMajor() && m.Scales.rowMajor()
	// Strides alone decide, so that a single row is treated like many.
	across := m.Codes.RowStride == 1 && m.Scales.RowStride == 1
	return operand{m.Codes, m.Scales, lookup()}, along || across
}

const (
	chunkRows  = 64  // rows decoded at once
	chunkSteps = 256 // elements of k decoded at once: 32 KB

	decodeSteps = 512 // largest number of elements of k per call of decodeAlong
)

// noNotes is the state in which only scales of 1 were met.
var noNotes = func() (n notes) {
	for i := range n.min {
		n.min[i], n.max[i] = 127, 127
	}
	return
}()

func (d *notes) reset() { *d = noNotes }

// chunk decodes n rows of o (at most chunkRows) from row i on. It decodes steps elements of k (at
// most chunkSteps) from k on, a multiple of 32. The result has the layout of the codes and is valid
// until the next call.
func (s *Scratch) chunk(o operand, i, k, n, steps int) View {
	dst := s.chunks.atLeast(2 * chunkRows * chunkSteps)
	if o.lengthwise() {
		s.decodeRows(dst, 2*chunkSteps, o.part(1, i, n).along(1, k, steps))
		return strided(dst, n, steps, chunkSteps, 1)
	}
	d := &s.calls.decoding
	d.dst, d.lookup = dst, o.lookup
	d.codes, d.scales = o.slice(1, i, k, n, steps).Ptr, o.scales.slice(1, i, k/format.MXBlock, n, 1).Ptr
	d.dstStride, d.codeStride, d.scaleStride = 2*chunkRows, o.ColStride, o.scales.ColStride
	d.rows, d.count = steps, n
	d.scaleMask = 1<<n - 1
	d.tailMask = d.scaleMask
	o.lookup.decodeAcross(d)
	return strided(dst, n, steps, 1, chunkRows)
}

// decodeRows decodes o into rows that are stride bytes apart. o has at most chunkRows rows and
// decodeSteps codes along k. It is not inlined, so that the goroutine can be preempted (see
// microkernel.column).
//
//go:noinline
func (s *Scratch) decodeRows(dst unsafe.Pointer, stride int, o operand) {
	d := &s.calls.decoding
	d.along(o)
	d.dst, d.dstStride = dst, stride
	o.lookup.decodeAlong(d)
}

// along sets up decoding of rows of at most decodeSteps codes along k.
func (d *decoding) along(o operand) {
	d.codes, d.scales, d.lookup = o.Ptr, o.scales.Ptr, o.lookup
	d.codeStride, d.scaleStride = o.RowStride, o.scales.RowStride
	d.rows, d.count = o.Rows, o.Cols
	d.scaleMask, d.tailMask = 1<<o.scales.Cols-1, 1<<(o.Cols%64)-1
}
