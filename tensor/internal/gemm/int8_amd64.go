//go:build amd64 && !purego

package gemm

// MXINT8 on VPDPBUSD, which multiplies unsigned by signed bytes: rows of a are packed with 128 added, which sums of b make good.
//
// Numerics: the products of a block of 32 are added exactly; each such sum is then scaled and added in FP32 by one fused
// multiply-add, in the order of k.

import (
	"math"
	"sync"
	"unsafe"
)

var int8AVX512 = family{
	rows: 6, columns: 32, masked: true, runSteps: 64 * recordSteps,
	tiles:   []func(*tile){nil, int8AVX512Tiles1, int8AVX512Tiles2, int8AVX512Tiles3, int8AVX512Tiles4, int8AVX512Tiles5, int8AVX512Tiles6},
	packing: packing{elem: 1, records: true},
}

// A record is what panels hold for a block of 32 codes: 8 steps of 4 codes and two of other numbers (asm/int8.go).
const (
	recordSteps       = 10
	recordScale       = 9 // of columns
	recordScaleOfRows = 8
)

// int8Lookup has the range of scales for which a sum can be scaled without leaving the normal numbers.
var int8Lookup = sync.OnceValue(func() *lookup { return &lookup{minScale: 40, maxScale: 220, magnitude: 0xff, format: INT8} })

// int8Operands says whether a and b can be packed in records: whole blocks of MXINT8.
func int8Operands(a, b Scaled) (x, y operand, ok bool) {
	packable := func(m Scaled) bool {
		return m.Format == INT8 && m.Codes.Cols%blockLength == 0 && (m.Codes.rowMajor() || m.Codes.RowStride == 1)
	}
	l := int8Lookup()
	return operand{a.Codes, a.Scales, l}, operand{b.Codes, b.Scales, l}, packable(a) && packable(b)
}

// multiplyInt8 leaves only those rows and columns to slow that need it: the others stay as they are whatever stands beside them.
func multiplyInt8(s *Scratch, sum, out View, a, b operand, accumulate bool, slow slowWay) {
	int8AVX512.multiply(s, sum, out, a, b, accumulate, func(sum, out View, x, y Scaled, accumulate bool) {
		a, b, _ := int8Operands(x, y)
		b.runs(func(j, n int, fitsB bool) {
			a.runs(func(i, m int, fitsA bool) {
				sum, out := sum, out
				if out.Ptr != nil {
					out = out.slice(2, i, j, m, n)
				} else {
					sum = sum.slice(4, i, j, m, n)
				}
				if fitsA && fitsB {
					int8AVX512.multiply(s, sum, out, a.part(1, i, m), b.part(1, j, n), accumulate, nil)
				} else {
					slow(sum, out, x.rows(i, m), y.rows(j, n), accumulate)
				}
			})
		})
	})
}

// records packs the rows of o into one panel. It is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (s *Scratch) records(dst unsafe.Pointer, o operand, shape panelShape) {
	blocks, step, flip := o.Cols/blockLength, 4*shape.width, uint32(0x80808080)
	if shape.columns {
		flip = 0
	}
	for i := 0; i < o.Rows; i += 16 {
		to, from := unsafe.Add(dst, 4*i), o.slice(1, i, 0, 1, 1).Ptr
		if !o.rowMajor() {
			interleaveBytesAVX512(to, from, o.ColStride, blocks, step, 1<<min(16, o.Rows-i)-1, &flip)
			continue
		}
		for r := range 16 { // past the last row, the last row again
			s.calls.offsets[r] = min(r, o.Rows-1-i) * o.RowStride
		}
		packBytesAVX512(to, from, &s.calls.offsets, blocks, step, &flip)
	}
	if shape.columns {
		int8SumsAVX512(dst, blocks)
	}
	s.recordScales(dst, o, shape)
}

// recordScales fills in the scales, those of columns with the 1/64 of both operands.
func (s *Scratch) recordScales(dst unsafe.Pointer, o operand, shape panelShape) {
	first, less := recordScaleOfRows, uint32(0)
	if shape.columns {
		first, less = recordScale, 12
	}
	least, most := uint8(127), uint8(127)
	for i := range o.Rows {
		for j := range o.scales.Cols {
			scale := *at[uint8](o.scales, i, j)
			least, most = min(least, scale), max(most, scale)
			*(*float32)(unsafe.Add(dst, 4*((j*recordSteps+first)*shape.width+i))) = math.Float32frombits((uint32(scale) - less) << 23)
		}
	}
	n := &s.calls.decoding.notes
	n.min[0], n.max[0] = min(n.min[0], least), max(n.max[0], most)
}
