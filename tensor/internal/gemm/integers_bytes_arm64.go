//go:build !purego

package gemm

// MXINT8 on NEON, by SMMLA or SDOT. The bits are those of VPDPBUSD (integers_bytes_amd64.go): a sum
// of products is exact either way, and it is scaled and added in the same order.

import (
	"math"
	"unsafe"

	"spmoe/tensor/format"
)

var (
	int8SMMLA = microkernel{
		rows: 4, columns: 12, adds: true, runSteps: 64 * smmlaSteps,
		tiles:   []func(*tile){nil, smmlaTiles1, smmlaTiles2, smmlaTiles3, smmlaTiles4},
		packing: packing{elem: 1, records: &records{steps: smmlaSteps, run: neonRecordRun, pack: groupsOf8.pack}},
	}
	int8SDOT = microkernel{
		rows: 4, columns: 12, adds: true, runSteps: 64 * sdotSteps,
		tiles:   []func(*tile){nil, sdotTiles1, sdotTiles2, sdotTiles3, sdotTiles4},
		packing: packing{elem: 1, records: &records{steps: sdotSteps, run: neonRecordRun, pack: groupsOf4.pack}},
	}
)

// The steps of a record (asm/neon_int8.go): groups of codes, and one group of scales.
const (
	smmlaSteps = 10
	sdotSteps  = 9
)

// neonRecordRun is a run whose records fit in L1.
const neonRecordRun = 512

// codeGroups packs records whose groups have unit codes of each row.
type codeGroups struct {
	unit int
	// along packs n codes of a row. across packs four rows that are adjacent in memory. These have
	// k codes each, stride bytes apart. Groups are step bytes apart.
	along  func(dst, src unsafe.Pointer, n, step int)
	across func(dst, src unsafe.Pointer, stride, k, step int)
	// put stores the scale of row i, or of column i, in the group of scales.
	put func(dst unsafe.Pointer, i int, columns bool, scale float32)
}

var (
	groupsOf8 = codeGroups{8, codesAlong[[8]uint8], zipBytes8NEON, putScaleTwice}
	groupsOf4 = codeGroups{4, codesAlong[[4]uint8], zipBytes4NEON, putScale}
)

// pack implements records.pack. It is not inlined, so that the goroutine can be preempted (see
// microkernel.column).
//
//go:noinline
func (g *codeGroups) pack(s *Scratch, dst unsafe.Pointer, o operand, shape panelShape) {
	o = o.part(1, 0, min(shape.height, o.Rows))
	step := g.unit * shape.width
	place := func(i int) (to, from unsafe.Pointer) {
		return unsafe.Add(dst, g.unit*i), unsafe.Pointer(at[uint8](o.View, i, 0))
	}
	if o.rowMajor() {
		for i := range o.Rows {
			to, from := place(i)
			g.along(to, from, o.Cols, step)
		}
	} else {
		left := inFours(1<<o.Rows-1, func(i int) {
			to, from := place(i)
			g.across(to, from, o.ColStride, o.Cols, step)
		})
		for i := range left {
			to, from := place(i)
			g.codesApart(to, from, o.ColStride, o.Cols, step)
		}
	}
	g.scales(dst, o.scales, shape, &s.calls.decoding.notes)
}

// record returns the bytes of a record: its codes and the group of scales.
func (g *codeGroups) record(step int) int { return (format.MXBlock/g.unit + 1) * step }

// codesAlong packs codes that are contiguous along k.
func codesAlong[T [4]uint8 | [8]uint8](dst, src unsafe.Pointer, n, step int) {
	unit := int(unsafe.Sizeof(*new(T)))
	for k := 0; k < n; k += unit {
		*(*T)(dst) = *(*T)(unsafe.Add(src, k))
		dst = unsafe.Add(dst, step)
		if (k+unit)%format.MXBlock == 0 {
			dst = unsafe.Add(dst, step)
		}
	}
}

// codesApart packs codes of one row that are stride bytes apart.
func (g *codeGroups) codesApart(dst, src unsafe.Pointer, stride, n, step int) {
	for k := range n {
		group := k/format.MXBlock + k/g.unit // of all groups, those of scales included
		*(*uint8)(unsafe.Add(dst, group*step+k%g.unit)) = *(*uint8)(unsafe.Add(src, k*stride))
	}
}

// scales fills in the scales and notes them. Those of columns include the factor 1/64 of both
// operands.
func (g *codeGroups) scales(dst unsafe.Pointer, scales View, shape panelShape, notes *notes) {
	step := g.unit * shape.width
	less := uint8(0)
	if shape.columns {
		less = 12
	}
	for block := range scales.Cols {
		group := unsafe.Add(dst, (block+1)*g.record(step)-step)
		for i := range scales.Rows {
			scale := *at[uint8](scales, i, block)
			notes.min[0], notes.max[0] = min(notes.min[0], scale), max(notes.max[0], scale)
			g.put(group, i, shape.columns, math.Float32frombits(uint32(scale-min(scale, less))<<23))
		}
	}
}

func putScale(dst unsafe.Pointer, i int, _ bool, scale float32) {
	*(*float32)(unsafe.Add(dst, 4*i)) = scale
}

// putScaleTwice stores the scales of two rows as 0, 0, 1, 1 and those of two columns as 0, 1, 0, 1.
func putScaleTwice(dst unsafe.Pointer, i int, columns bool, scale float32) {
	first, second := 2*i, 2*i+1
	if columns {
		first, second = i/2*4+i%2, i/2*4+i%2+2
	}
	*(*float32)(unsafe.Add(dst, 4*first)) = scale
	*(*float32)(unsafe.Add(dst, 4*second)) = scale
}
