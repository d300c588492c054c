package mx

// Quantization by the AVX2 kernels for strips of whole blocks of BF16. If a panel has fewer rows
// than a block, a strip is copied and padded with zeros. The columns after the last whole block are
// quantized as in any format, and so are strips that the kernels reject.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// stripScratch is memory for the strips of a panel. The arena aligns it.
type stripScratch struct {
	format quant.Format
	padded [format.MXBlock * quant.StripTiles * format.MXBlock]tensor.BFloat16
}

// quantizeStrips quantizes a region in strips.
func (q *quantizer) quantizeStrips(ex *tensor.Exec, at region) {
	s := (*stripScratch)(pointerTo(ex.New(tensor.UINT8, int(unsafe.Sizeof(stripScratch{}))).U8()))
	if ex.Dry() {
		if at.cols %= format.MXBlock; at.cols > 0 {
			q.quantizeAny(ex, at)
		}
		return
	}
	s.format = quant.MinifloatFormat(q.element.Mantissa(), q.rule.emax, q.element.Largest(), q.rule.roundUp)
	end := at.col + at.cols
	for ; end-at.col >= format.MXBlock; at.col += at.cols {
		at.cols = min(end-at.col, quant.StripTiles*format.MXBlock) / format.MXBlock * format.MXBlock
		strip := q.strip(s, at)
		if strip.Quantize(q.rows.requested(), q.cols.requested()) {
			q.quantizeAny(ex, at)
		}
	}
	if at.cols = end - at.col; at.cols > 0 {
		q.quantizeAny(ex, at)
	}
}

// strip returns the kernel arguments for a strip.
func (q *quantizer) strip(s *stripScratch, at region) quant.Strip {
	data, stride, _ := q.x.Memory()
	in := unsafe.Add(data, (at.row*stride+at.col)*size)
	strip := quant.Strip{Format: &s.format, X: in, Stride: stride * size, Rows: at.rows, Tiles: at.cols / format.MXBlock}
	if at.rows < format.MXBlock {
		padded := unsafe.Slice((*uint8)(unsafe.Pointer(&s.padded)), format.MXBlock*at.cols*size)
		clear(padded[at.rows*at.cols*size:])
		copyRows(padded, at.cols*size, unsafe.Slice((*uint8)(in), ((at.rows-1)*stride+at.cols)*size), stride*size, at.rows, at.cols*size)
		strip.X, strip.Stride = pointerTo(padded), at.cols*size
	}
	if q.rows.requested() {
		strip.RowCodes, strip.RowScales = pointerTo(q.rows.codesAt(at)), pointerTo(q.rows.scalesAt(at))
		strip.RowStride, strip.RowScaleStep = q.rows.Cols(), q.rows.Scales.Dim(1)
	}
	if q.cols.requested() {
		strip.ColCodes, strip.ColScales = pointerTo(q.cols.codesAt(at)), pointerTo(q.cols.scalesAt(at))
		strip.ColStride = q.cols.Cols()
	}
	return strip
}
