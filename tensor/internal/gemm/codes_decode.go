package gemm

// Decoding block-scaled operands to BF16, chunk by chunk while they are packed.

import (
	"unsafe"

	"spmoe/tensor/format"
)

// decoders has what decodes codes, by their element. Elements without an entry are decoded in plain
// Go.
type decoders map[*format.Element]func() *lookup

// both says whether a and b can be decoded on the way into panels.
func (d decoders) both(a, b Scaled) (x, y operand, ok bool) {
	x, okX := d.operand(a)
	y, okY := d.operand(b)
	return x, y, okX && okY
}

// operand wants codes and their scales in the same order in memory.
func (d decoders) operand(m Scaled) (o operand, ok bool) {
	lookup, ok := d[m.Element]
	if !ok {
		return o, false
	}
	along := m.Codes.rowMajor() && m.Scales.rowMajor()
	across := m.Codes.RowStride == 1 && m.Scales.RowStride == 1 // by the strides only, so that a single row is like many
	return operand{m.Codes, m.Scales, lookup()}, along || across
}

const (
	chunkRows  = 64  // that are decoded at once
	chunkSteps = 256 // of k, for which they are decoded at once: 32 KB

	decodeSteps = 512 // of k, at most, in one call of decodeAlong
)

// noNotes has met nothing but scales of 1.
var noNotes = func() (n notes) {
	for i := range n.min {
		n.min[i], n.max[i] = 127, 127
	}
	return
}()

func (d *notes) reset() { *d = noNotes }

// chunk decodes n (at most chunkRows) rows of o from row i on, at steps (at most chunkSteps) of k
// from k on, a multiple of 32. The result has the layout of the codes and lives until the next
// call.
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

// decodeRows decodes o, rows of at most decodeSteps codes along k, to rows that are stride bytes
// apart. It is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (s *Scratch) decodeRows(dst unsafe.Pointer, stride int, o operand) {
	d := &s.calls.decoding
	d.along(o)
	d.dst, d.dstStride = dst, stride
	o.lookup.decodeAlong(d)
}

// along sets what is decoded: rows of at most decodeSteps codes along k.
func (d *decoding) along(o operand) {
	d.codes, d.scales, d.lookup = o.Ptr, o.scales.Ptr, o.lookup
	d.codeStride, d.scaleStride = o.RowStride, o.scales.RowStride
	d.rows, d.count = o.Rows, o.Cols
	d.scaleMask, d.tailMask = 1<<o.scales.Cols-1, 1<<(o.Cols%64)-1
}
