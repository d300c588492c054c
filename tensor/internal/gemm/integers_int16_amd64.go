//go:build amd64 && !purego

package gemm

// MXINT8 on AVX2, which multiplies pairs of 16-bit words and adds the two products. VPMADDUBSW
// would take bytes, but its sums saturate. The bits are those of VPDPBUSD
// (integers_bytes_amd64.go): a sum of products is exact either way, and it is scaled and added in
// the same order.

import (
	"unsafe"

	"spmoe/tensor/format"
)

var int8AVX2 = microkernel{
	rows: 3, columns: int8AVX2Columns, adds: true, runSteps: 16 * wordSteps, scratchBytes: 4 * 3 * 32,
	tiles:   []func(*tile){nil, int8AVX2Tiles1, int8AVX2Tiles2, int8AVX2Tiles3},
	packing: packing{elem: 1, records: &wordRecords},
}

// wordSteps is the number of steps of a record of words (asm/int8_avx2.go): 16 steps of 2 codes,
// and the scales.
const wordSteps = 17

// wordRun is a run of records of words whose cache lines fit in L1.
const wordRun = 128

var wordRecords = records{steps: wordSteps, run: wordRun, few: &fewWords, pack: (*Scratch).words}

// fewWords is for a b whose codes are contiguous along k. It packs a column panel for a run along k
// and multiplies it at once, while L1 holds it. Writing all panels of words to memory and reading
// them back would take longer than the products.
var fewWords = fewInt8{
	accepts: func(a, b operand, m mode) bool {
		return !m.add && a.Rows <= fewWordRows && b.Rows >= int8AVX2Columns && b.rowMajor() && b.scales.rowMajor()
	},
	sums: (*Scratch).fewWords,
}

const (
	fewWordRows = 96  // rows of a up to which this was measured to be faster
	fewWordRun  = 256 // elements along k

	int8AVX2Columns = 32
)

// fewWords computes all sums of 32 columns, then those of the next 32.
func (s *Scratch) fewWords(f *microkernel, sum View, a, b operand, _ bool) bool {
	p, d, t := product{a: f.packing.rowPanels(s, &s.a, a, f.rows), sum: sum}, &s.calls.panel, &s.calls.tile
	if !s.calls.decoding.exact(a) {
		return false
	}
	*d = columnPanel{dst: s.b.atLeast(4 * f.columns * f.packing.steps(fewWordRun)), stride: b.RowStride, scaleStride: b.scales.RowStride}
	*t = tile{b: d.dst, out: s.partial.atLeast(f.scratchBytes), sumStride: 4 * sum.RowStride}
	d.reset()
	for j := 0; j < b.Rows; j += f.columns {
		j = min(j, b.Rows-f.columns) // the last group starts early enough to be full
		for k := 0; k < b.Cols; k += fewWordRun {
			d.k, d.ahead = min(fewWordRun, b.Cols-k), fewWordRun
			if k+d.k == b.Cols {
				d.ahead = f.columns*b.RowStride - k
			}
			d.src, d.scales = unsafe.Pointer(at[uint8](b.View, j, k)), unsafe.Pointer(at[uint8](b.scales, j, k/format.MXBlock))
			callAlongWords(d)
			t.sum, t.startAtSum, t.steps = unsafe.Pointer(at[float32](sum, 0, j)), min(k, 1), f.packing.steps(d.k)
			f.column(t, &p, f.packing.steps(k), pass{})
		}
	}
	return d.exact(b)
}

// callAlongWords is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func callAlongWords(d *columnPanel) { alongWordsAVX2(d) }

// wordsAcross is indexed by the number of rows packed.
var wordsAcross = [17]func(dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, records, step int){
	1: wordsAcross1AVX2, wordsAcross2AVX2, wordsAcross3AVX2, wordsAcross4AVX2, wordsAcross5AVX2, wordsAcross6AVX2, wordsAcross7AVX2, wordsAcross8AVX2,
	16: wordsAcross16AVX2,
}

// words packs a panel, record by record. In this order a store's surplus lanes may overlap the next
// step. It is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (s *Scratch) words(dst unsafe.Pointer, o operand, shape panelShape) {
	blocks, step, rows := o.Cols/format.MXBlock, 4*shape.width, min(shape.height, o.Rows)
	scales := s.wordScales(o.scales, rows, shape.columns)
	for i, lanes := 0, 0; i < rows; i += lanes {
		to, from, scales := unsafe.Add(dst, 4*i), unsafe.Pointer(at[uint8](o.View, i, 0)), unsafe.Add(scales, 4*i)
		switch lanes = wordLanes(rows - i); {
		case !o.rowMajor():
			if rows-i >= 16 {
				lanes = 16
			}
			wordsAcross[min(lanes, o.Rows-i)](to, from, o.ColStride, scales, blocks, step)
		case lanes == 4:
			wordsAlong4AVX2(to, from, s.offsetsFrom(o.View, i), scales, blocks, step)
		default:
			wordsAlong8AVX2(to, from, s.offsetsFrom(o.View, i), scales, blocks, step)
		}
	}
}

// wordLanes returns how many of the remaining rows are packed at once.
func wordLanes(rows int) int {
	if rows <= 4 {
		return 4
	}
	return 8
}

// wordScales returns the scales of rows as FP32, 32 for each block. Those of columns include the
// factor 1/64 of both operands.
func (s *Scratch) wordScales(scales View, rows int, columns bool) unsafe.Pointer {
	less := 0
	if columns {
		less = 12
	}
	dst := s.chunks.atLeast(4 * 32 * scales.Cols)
	for i := 0; i < rows; i += 8 {
		pack := wordScales8AVX2
		if wordLanes(rows-i) == 4 {
			pack = wordScales4AVX2
		}
		pack(unsafe.Add(dst, 4*i), unsafe.Pointer(at[uint8](scales, i, 0)), s.offsetsFrom(scales, i), scales.ColStride, scales.Cols, less, &s.calls.decoding.notes)
	}
	return dst
}

// peakInt8AVX2 counts the work of VPMADDWD: 16 multiply-adds.
func peakInt8AVX2(rounds int) float64 {
	int8AVX2Peak(rounds)
	return float64(rounds) * 12 * 16 * 2
}
