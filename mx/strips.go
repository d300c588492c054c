package mx

// Quantisation by the AVX2 kernels for strips of whole blocks of BF16. Where a panel has fewer rows than a block, a strip is copied to
// where zeros fill it up; columns behind the last whole block, and what the kernels refuse, are quantised from FP32.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
)

// stripable says whether there are kernels for a format.
func stripable(f Format, dtype tensor.DType) bool {
	return dtype == tensor.BF16 && (f == E4M3 || f == E5M2 || f == INT8)
}

// stripFormats are the formats as the kernels want them.
var stripFormats = map[Format]*quant.Format{
	E4M3: quant.NewFormat(minifloats[E4M3].mantissa, minifloats[E4M3].largest),
	E5M2: quant.NewFormat(minifloats[E5M2].mantissa, minifloats[E5M2].largest),
	INT8: quant.NewFormat(7, minifloats[INT8].largest),
}

// stripScratch is what a panel's strips need; the arena aligns it.
type stripScratch struct {
	strip  quant.Strip
	grid   quant.Grid
	steps  quant.StripScratch
	padded [BlockSize * quant.StripTiles * BlockSize]tensor.BFloat16
}

// strips quantises the panel at that place.
func (q *quantizer) strips(ex *tensor.Exec, at place) {
	s := (*stripScratch)(first(ex.New(tensor.UINT8, int(unsafe.Sizeof(stripScratch{}))).U8()))
	s.grid = q.grid()
	end := at.col + at.cols
	for ; end-at.col >= BlockSize; at.col += at.cols {
		at.cols = min(end-at.col, quant.StripTiles*BlockSize) / BlockSize * BlockSize
		q.locate(s, at)
		if s.strip.Quantize(&s.grid, &s.steps, q.rows.wanted(), q.cols.wanted()) {
			q.values(ex, at)
		}
	}
	if at.cols = end - at.col; at.cols > 0 {
		q.values(ex, at)
	}
}

// locate finds a strip's input and output.
func (q *quantizer) locate(s *stripScratch, at place) {
	const size = int(unsafe.Sizeof(tensor.BFloat16(0)))
	data, stride, _ := q.x.Memory()
	in := unsafe.Add(data, (at.row*stride+at.col)*size)
	s.strip = quant.Strip{Format: stripFormats[q.format], X: in, Stride: stride * size, Rows: at.rows, Tiles: at.cols / BlockSize}
	if at.rows < BlockSize {
		padded := unsafe.Slice((*uint8)(unsafe.Pointer(&s.padded)), BlockSize*at.cols*size)
		clear(padded[at.rows*at.cols*size:])
		copyRows(padded, at.cols*size, unsafe.Slice((*uint8)(in), ((at.rows-1)*stride+at.cols)*size), stride*size, at.rows, at.cols*size)
		s.strip.X, s.strip.Stride = first(padded), at.cols*size
	}
	if q.rows.wanted() {
		s.strip.RowCodes, s.strip.RowScales = first(q.rows.codesAt(at)), first(q.rows.scalesAt(at))
		s.strip.RowStride, s.strip.RowScaleStep = q.rows.Cols(), q.rows.Scales.Dim(1)
	}
	if q.cols.wanted() {
		s.strip.ColCodes, s.strip.ColScales = first(q.cols.codesAt(at)), first(q.cols.scalesAt(at))
		s.strip.ColStride = q.cols.Cols()
	}
}
