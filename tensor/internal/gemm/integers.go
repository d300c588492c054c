package gemm

// Products of MXINT8 as integers.
//
// Numerics: the products of a block of 32 are added exactly. Each block's sum is then scaled and
// added in FP32 by one fused multiply-add, in the order of k.

import (
	"slices"
	"sync"
	"unsafe"

	"spmoe/tensor/format"
)

// records describes how panels hold blocks of 32 codes, one record per block. If codes are
// contiguous across k, run elements along k are packed before the next panel is.
type records struct {
	steps, run int      // steps per record; elements per run
	few        *fewInt8 // for few rows of a; may be nil
	// pack packs the rows of o that fit into one panel. It may read the others.
	pack func(s *Scratch, dst unsafe.Pointer, o operand, shape panelShape)
}

// fewInt8 multiplies few rows of a. Such products are bound by reading b, so b is not packed as a
// whole. The bits are those of the packed product.
type fewInt8 struct {
	accepts func(a, b operand, m mode) bool
	// sums computes a·bᵀ, added to sum if startAtSum. Rows of sum have room for whole tiles. It
	// reports whether both operands could be multiplied as integers.
	sums func(s *Scratch, f *microkernel, sum View, a, b operand, startAtSum bool) bool
}

// multiply is multiplyInt8 for operands that it accepts. If they cannot be multiplied as integers,
// it leaves the result alone and returns false.
func (w *fewInt8) multiply(s *Scratch, f *microkernel, sum, out View, a, b operand, accumulate bool) bool {
	stride := f.wholeTiles(b.Rows)
	target := strided(s.sums.atLeast(4*a.Rows*stride), a.Rows, b.Rows, stride, 1)
	if accumulate {
		copyRows(target, sum)
	}
	if !w.sums(s, f, target, a, b, accumulate) {
		return false
	}
	if out.Ptr != nil {
		roundRows(out, target)
	} else {
		copyRows(sum, target)
	}
	return true
}

// int8Lookup holds the range of scales for which a scaled sum stays in the range of normal numbers.
var int8Lookup = sync.OnceValue(func() *lookup { return &lookup{minScale: 40, maxScale: 220, magnitude: 0xff, element: format.INT8} })

// int8Operands reports whether a and b can be packed in records: they must be whole blocks of
// MXINT8.
func int8Operands(a, b Scaled) (x, y operand, ok bool) {
	packable := func(m Scaled) bool {
		return m.Element == format.INT8 && m.Codes.Cols%format.MXBlock == 0 && (m.Codes.rowMajor() || m.Codes.RowStride == 1)
	}
	if !packable(a) || !packable(b) {
		return
	}
	l := int8Lookup()
	return operand{a.Codes, a.Scales, l}, operand{b.Codes, b.Scales, l}, true
}

// multiplyInt8 passes only the rows and columns that need it to slow: the bits of an element must
// not depend on its neighbours.
func (f *microkernel) multiplyInt8(s *Scratch, sum, out View, a, b operand, m mode, slow fallback) {
	few := f.packing.records.few
	if few != nil && m.span == 0 && a.Cols > 0 && few.accepts(a, b, m) && few.multiply(s, f, sum, out, a, b, m.add) {
		return
	}
	f.multiply(s, sum, out, a, b, m, bySpan(s, f.exceptions(s, int8Operands, slow)))
}

// scaleRange holds the smallest and the largest scale of a packed block.
type scaleRange struct{ least, most int }

// scaleRange returns that of the block packed last. Other kernels do not need it.
func (f *microkernel) scaleRange(s *Scratch, m mode) (r scaleRange) {
	if f.exponents != nil || m.exactBlocks {
		r = s.calls.decoding.scaleRange()
	}
	return r
}

// scaleRange returns the range of the scales since the reset.
func (d *notes) scaleRange() scaleRange {
	return scaleRange{int(slices.Min(d.min[:])), int(slices.Max(d.max[:]))}
}

// exponentsFit reports whether 1.5·2^(23+e) is a normal number for every exponent e of a product.
// With codes of 6 fractional bits, e is the sum of two scales less 2·127 + 12.
func exponentsFit(a, b scaleRange) bool {
	const bias = 2*127 + 12
	return a.least+b.least >= bias-149 && a.most+b.most <= bias+104
}

// panels packs the rows of o into consecutive panels.
func (r *records) panels(s *Scratch, dst unsafe.Pointer, o operand, shape panelShape) {
	run := o.Cols
	if !o.rowMajor() {
		run = r.run
	}
	for k := 0; k < o.Cols; k += run {
		part := o.along(1, k, min(run, o.Cols-k))
		for i := 0; i < o.Rows; i += shape.height {
			to := unsafe.Add(dst, i/shape.height*shape.stride+4*shape.width*(k/format.MXBlock*r.steps))
			r.pack(s, to, part.part(1, i, o.Rows-i), shape)
		}
	}
}

// offsetsFrom returns the byte offsets of 16 rows from row i on. Past the last row, it repeats the
// last row.
func (s *Scratch) offsetsFrom(v View, i int) *[16]int {
	for r := range s.calls.offsets {
		s.calls.offsets[r] = min(r, v.Rows-1-i) * v.RowStride
	}
	return &s.calls.offsets
}
