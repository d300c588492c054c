package mx

// FP8 with FP32 scales of blocks, as in DeepSeek-V3, or of tensors by its kernels: E4M3 codes of
// BF16 elements.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// isFP8 says whether the kernels for E4M3 codes with FP32 scales can encode and decode f.
func (f Format) isFP8() bool {
	if kernels != quant.Tiles || f.Element != format.E4M3 || f.Shrink {
		return false
	}
	return f.Scale == ScaleNone || f.Scale.dtype() == tensor.FP32 && !f.TensorScale
}

// fp8Columns is the number of columns that an fp8Quantizer processes at a time. For blocks of 128
// rows, the first-level cache holds their elements.
const fp8Columns = 128

// An fp8Quantizer quantizes rows of blocks, a few whole blocks at a time. unit is the number of
// columns per element of amax and factors: a run of the kernels or, for blocks of several rows, 1.
type fp8Quantizer struct {
	quantizeArgs
	height, width, unit int
	most                int // columns at a time
	amax, factors       []float32
	encode              float32 // multiplies the elements if blocks have no scales
}

// newFP8Quantizer returns a quantizer, or false if the kernels do not take the blocks or x.
func (g *quantizeArgs) newFP8Quantizer(ex *tensor.Exec) (q fp8Quantizer, ok bool) {
	q = fp8Quantizer{quantizeArgs: *g, unit: 1}
	q.height, q.width = g.t.BlockShape()
	if q.height == 1 {
		q.unit = format.MXBlock
	}
	if g.t.Format.Scale == ScaleNone {
		q.width = q.unit // as if blocks had the scale of the tensor
	}
	whole := q.width%format.MXBlock == 0 || q.width == 1 && q.height > 1
	if !whole || !g.t.Format.isFP8() || g.rounding != Nearest || g.x.DType() != tensor.BF16 || g.x.Cols%format.MXBlock != 0 {
		return q, false
	}
	q.most = ceilDiv(fp8Columns*q.unit, q.width) * q.width
	q.amax, q.factors = ex.New(tensor.FP32, q.most/q.unit).F32(), ex.New(tensor.FP32, q.most/q.unit).F32()
	return q, true
}

// quantize quantizes rows [lo, hi) of blocks. It returns false if an element is NaN or infinite. In
// that case some codes and scales are missing.
func (q *fp8Quantizer) quantize(lo, hi int) bool {
	if q.height == 1 && !q.t.Amax.Valid() {
		return q.quantizeRows(lo, hi)
	}
	for at := range q.t.rowsOfBlocks(q.x.Rows, lo, hi) {
		q.encode = q.t.encodeScale(at.group)
		if !q.quantizeStretch(at, q.x.Cols) {
			return false
		}
	}
	return true
}

// quantizeRows is quantize for blocks of one row. Contiguous rows of whole blocks are one long row.
func (q *fp8Quantizer) quantizeRows(lo, hi int) bool {
	_, stride, _ := q.x.Memory()
	length := q.x.Cols
	if stride == length && length%q.width == 0 {
		length *= hi - lo
		hi = min(lo+1, hi)
	}
	for i := lo; i < hi; i++ {
		if !q.quantizeStretch(blockRow{block: i, first: i, last: i + 1}, length) {
			return false
		}
	}
	return true
}

// quantizeStretch quantizes a row of blocks of the given length.
func (q *fp8Quantizer) quantizeStretch(at blockRow, length int) bool {
	for col := 0; col < length; col += q.most {
		if !q.quantizeColumns(at, col, min(q.most, length-col)) {
			return false
		}
	}
	return true
}

// quantizeColumns quantizes n columns from column col on: whole blocks, except at the end of a row.
func (q *fp8Quantizer) quantizeColumns(at blockRow, col, n int) bool {
	data, stride, _ := q.x.Memory()
	rows, step, first := at.last-at.first, q.x.Cols, at.first*q.x.Cols+col
	x := unsafe.Slice((*uint16)(unsafe.Add(data, 2*(at.first*stride+col))), (rows-1)*stride+n)
	codes, factors := q.t.Codes.U8()[first:first+(rows-1)*step+n], q.factors[:n/q.unit]
	amax := q.amax[:n/q.unit]
	if q.unit > 1 {
		quant.AmaxRuns(amax, x)
	} else {
		quant.AmaxColumns(amax, x, stride, rows)
	}
	if !q.setScales(at.block, col/q.width, amax, factors) {
		return false
	}
	if q.unit > 1 {
		quant.EncodeRuns(codes, x, factors)
	} else {
		quant.EncodeColumns(codes, x, factors, step, stride, rows)
	}
	return true
}

// setScales chooses the scales and factors of blocks of a row of blocks, from block col on. It
// returns false if a block has none.
func (q *fp8Quantizer) setScales(row, col int, amax, factors []float32) bool {
	if q.t.Format.Scale == ScaleNone {
		for i := range factors {
			factors[i] = q.encode
		}
		most := largest(amax)
		return most-most == 0
	}
	scales, per := q.t.Scales.F32()[row*q.t.Scales.Dim(1)+col:], q.width/q.unit
	for b, first := 0, 0; first < len(amax); b, first = b+1, first+per {
		end := min(first+per, len(amax))
		most := largest(amax[first:end])
		if most-most != 0 {
			return false
		}
		s, factor := q.wideScale(most)
		scales[b] = s.value
		for i := first; i < end; i++ {
			factors[i] = factor
		}
	}
	return true
}

// decodeFP8 decodes whole runs of codes to BF16.
func (d *rowDecoder) decodeFP8(out []uint16, codes []uint8) {
	if d.run == format.MXBlock {
		quant.DecodeRuns(out, codes, d.scales)
	} else {
		quant.DecodeColumns(out, codes, d.scales)
	}
}
