package mx

// Dequantization: from codes and scales to numbers.

import (
	"fmt"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// Dequantize sets dst to the values of t. dst: [rows, cols] is FP32 or BF16. With E8M0 scales, FP32
// values are exact unless they exceed its range. BF16 values are rounded once. Every element of a
// block with a NaN scale is NaN. The result is that of the matrix before its Hadamard transform, if
// the format has one.
func Dequantize(ex *tensor.Exec, dst tensor.Matrix, t Tensor) {
	if dst.Rows != t.Rows() || dst.Cols != t.Cols() {
		panic(fmt.Sprintf("mx: cannot dequantize a [%d, %d] matrix into [%d, %d]: the shapes must agree", t.Rows(), t.Cols(), dst.Rows, dst.Cols))
	}
	if !t.Format.isMX() {
		dequantizeAny(ex, dst, t)
		return
	}
	if t.Ends == nil {
		dequantize(ex, dst, t)
		return
	}
	for g := range t.Ends {
		lo, hi := group(t.Ends, g)
		dequantize(ex, dst.RowSlice(lo, hi), t.Group(g))
	}
}

// dequantize distributes the rows over the threads. The unit is the rows that share scales along
// columns.
func dequantize(ex *tensor.Exec, dst tensor.Matrix, t Tensor) {
	d := dequantizer{dst: dst, t: t, decoder: decoder(t.Format.Element), values: t.Format.Values()}
	tensor.Parallel(ex, ceilDiv(dst.Rows, format.MXBlock), opsPerElement*dst.Rows*dst.Cols, d, dequantizeRange)
}

type dequantizer struct {
	dst     tensor.Matrix
	t       Tensor
	decoder quant.Decoder
	values  *[256]float32 // by code
}

func decoder(e *format.Element) quant.Decoder {
	numbers := e.Largest()
	if e.Infinity() != 0 {
		numbers = e.Infinity()
	}
	return quant.NewDecoder(e.Mantissa(), e.MinExponent(), e.SignBit(), e.Infinity(), numbers)
}

// panelRows is the number of rows converted at a time. It divides format.MXBlock.
const panelRows = 8

func dequantizeRange(ex *tensor.Exec, d dequantizer, lo, hi int) {
	cols, perRow := d.dst.Cols, ceilDiv(d.dst.Cols, format.MXBlock)
	width := perRow * format.MXBlock
	panel := ex.New(tensor.FP32, panelRows, width)
	// The kernels take whole blocks. The padding of codes and scales after the last column stays
	// zero.
	codes, scales := ex.New(tensor.UINT8, width).U8(), ex.New(tensor.FP32, width).F32()
	if ex.Dry() {
		return
	}
	clear(codes)
	clear(scales)
	end := min(hi*format.MXBlock, d.dst.Rows)
	for first := lo * format.MXBlock; first < end; first += panelRows {
		rows := min(panelRows, end-first)
		for r := range rows {
			d.loadScales(scales, first+r)
			in := d.t.Codes.U8()[(first+r)*cols:][:cols]
			if cols < width {
				copy(codes, in)
				in = codes
			}
			d.row(panel.F32()[r*width:][:width], in, scales)
		}
		tensor.Convert(ex, d.dst.RowSlice(first, first+rows), panel.Mat().RowSlice(0, rows).ColSlice(0, cols))
	}
}

// loadScales sets scales to the scales of a row's blocks or columns. Along columns they change only
// from one block to the next.
func (d *dequantizer) loadScales(scales []float32, row int) {
	perRow := d.t.Scales.Dim(1)
	from := row
	if d.t.Blocks == AlongCols {
		if row%format.MXBlock != 0 {
			return
		}
		from = row / format.MXBlock
	}
	for i, s := range d.t.Scales.U8()[from*perRow:][:perRow] {
		scales[i] = DecodeScale(s)
	}
}

// row decodes whole blocks.
func (d *dequantizer) row(out []float32, codes []uint8, scales []float32) {
	switch along := d.t.Blocks; {
	case len(out) == 0:
	case kernels >= quant.Lanes && along == AlongRows:
		quant.DecodeRows(out, codes, scales, &d.decoder)
	case kernels >= quant.Lanes:
		quant.DecodeCols(out, codes, scales, &d.decoder)
	case along == AlongRows:
		for c, code := range codes {
			out[c] = d.values[code] * scales[c/format.MXBlock]
		}
	default:
		for c, code := range codes {
			out[c] = d.values[code] * scales[c]
		}
	}
}
