//go:build amd64 && !purego

package gemm

// MXINT8 by VPDPBUSD, which multiplies unsigned by signed bytes. Rows of a are packed with 128
// added, and sums of b correct for it.

import (
	"unsafe"

	"spmoe/tensor/format"
)

var int8AVX512 = microkernel{
	rows: 6, columns: 32, masked: true, rounds: true, adds: true, runSteps: 32 * recordSteps,
	tiles:     []func(*tile){nil, int8AVX512Tiles1, int8AVX512Tiles2, int8AVX512Tiles3, int8AVX512Tiles4, int8AVX512Tiles5, int8AVX512Tiles6},
	exponents: []func(*tile){nil, int8AVX512ExponentTiles1, int8AVX512ExponentTiles2, int8AVX512ExponentTiles3, int8AVX512ExponentTiles4, int8AVX512ExponentTiles5, int8AVX512ExponentTiles6},
	packing:   packing{elem: 1, records: &byteRecords},
}

var byteRecords = records{steps: recordSteps, run: recordRun, few: &directInt8, pack: (*Scratch).records}

// A record of bytes: 8 steps of 4 codes and two steps of other numbers (asm/int8.go).
const (
	recordSteps       = 10
	recordScale       = 9 // of columns
	recordScaleOfRows = 8
)

// recordRun is a run of records of bytes: one page per step.
const recordRun = 512

// records packs the rows of o that fit into one panel. It is not inlined, so that the goroutine can
// be preempted (see microkernel.column).
//
//go:noinline
func (s *Scratch) records(dst unsafe.Pointer, o operand, shape panelShape) {
	o = o.part(1, 0, min(shape.height, o.Rows))
	blocks, step := o.Cols/format.MXBlock, 4*shape.width
	lanes, interleave, flip := 16, interleaveBytes16AVX512, &s.calls.flip
	if *flip = 0x80808080; shape.columns {
		*flip = 0
	}
	if shape.width > lanes {
		lanes, interleave = 32, interleaveBytes32AVX512
	}
	if o.rowMajor() {
		along := packBytesAVX512
		if shape.height <= 8 {
			along = packBytes8AVX512
		}
		for i := 0; i < o.Rows; i += 16 {
			along(unsafe.Add(dst, 4*i), o.slice(1, i, 0, 1, 1).Ptr, s.offsetsFrom(o.View, i), blocks, step, flip)
		}
	} else {
		for i := 0; i < o.Rows; i += lanes {
			interleave(unsafe.Add(dst, 4*i), o.slice(1, i, 0, 1, 1).Ptr, o.ColStride, blocks, step, 1<<min(lanes, o.Rows-i)-1, flip)
		}
	}
	if shape.columns {
		for i := 0; i < o.Rows; i += 16 {
			int8SumsAVX512(unsafe.Add(dst, 4*i), blocks, step, 1<<min(16, o.Rows-i)-1)
		}
	}
	s.recordScales(dst, o.scales, shape)
}

// recordScales fills in the scales. Those of columns include the factor 1/64 of both operands.
func (s *Scratch) recordScales(dst unsafe.Pointer, scales View, shape panelShape) {
	first, less := recordScaleOfRows, 0
	if shape.columns {
		first, less = recordScale, 12
	}
	s.packScales(unsafe.Add(dst, 4*first*shape.width), scales, 4*recordSteps*shape.width, less)
}

// packScales subtracts less from scales and stores them as FP32 numbers. The scales of successive
// blocks are record bytes apart.
func (s *Scratch) packScales(dst unsafe.Pointer, scales View, record, less int) {
	for i := 0; i < scales.Rows; i += 16 {
		to, from, lanes := unsafe.Add(dst, 4*i), scales.slice(1, i, 0, 1, 1).Ptr, 1<<min(16, scales.Rows-i)-1
		if scales.rowMajor() {
			scalesAlongAVX512(to, from, s.offsetsFrom(scales, i), 1<<(scales.Cols%16)-1, scales.Cols, record, lanes, less, &s.calls.decoding.notes)
		} else {
			scalesAcrossAVX512(to, from, scales.ColStride, scales.Cols, record, lanes, less, &s.calls.decoding.notes)
		}
	}
}
