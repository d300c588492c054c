package mx

// Dequantization: from codes and scales to numbers, one row of blocks at a time.

import (
	"fmt"
	"unsafe"

	"spmoe/mx/internal/nvfp4"
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
	if t.Format.Hadamard == 0 {
		dequantizeGeneral(ex, dst, t, allScales)
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	h := ex.New(tensor.FP32, dst.Rows, dst.Cols).Mat()
	dequantizeGeneral(ex, h, t, allScales)
	InverseHadamard(ex, dst, h, t.Format, t.Blocks, t.Ends)
}

// dequantizeGeneral decodes a matrix of any format. It does not undo a Hadamard transform.
func dequantizeGeneral(ex *tensor.Exec, dst tensor.Matrix, t Tensor, by scaling) {
	tensor.Parallel(ex, t.Scales.Dim(0), generalOpsPerElement*dst.Rows*dst.Cols, decodeArgs{dst, t, by}, decodeBlocks)
}

// scaling says which scales multiply decoded elements.
type scaling uint8

const (
	noScales    scaling = iota
	blockScales         // those of blocks, not of groups
	allScales
)

// decodeArgs holds the arguments of decodeBlocks.
type decodeArgs struct {
	dst tensor.Matrix
	t   Tensor
	by  scaling
}

// decodeBlocks decodes rows [lo, hi) of blocks. Each product with a scale is rounded to FP32.
func decodeBlocks(ex *tensor.Exec, d decodeArgs, lo, hi int) {
	r, exact := newRowDecoder(ex, d.t), d.exact()
	if ex.Dry() || d.dst.Cols == 0 {
		return
	}
	plain := d.by == noScales || d.t.Format.Scale == ScaleNone
	if plain {
		for i := range r.scales {
			r.scales[i] = 1
		}
	}
	for at := range d.t.rowsOfBlocks(d.dst.Rows, lo, hi) {
		if !plain {
			r.loadScales(at.block)
		}
		for i := at.first; i < at.last; i++ {
			if exact {
				r.decodeExact(bf16Row(d.dst, i), i)
				continue
			}
			row := r.decode(i)
			if d.by == allScales {
				tensor.Scale(row, d.t.GroupScale(at.group), row)
			}
			storeRow(d.dst, i, 0, row)
		}
	}
}

// exact says whether the kernels of NVFP4 decode straight to BF16, which holds every result.
func (d *decodeArgs) exact() bool {
	return d.dst.DType() == tensor.BF16 && d.by == blockScales && d.t.Format.isNVFP4()
}

// storeRow sets columns of row i of an FP32 or BF16 matrix, from col on. A row is too little work
// for tensor.Convert.
func storeRow(dst tensor.Matrix, i, col int, row []float32) {
	data, stride, _ := dst.Memory()
	at := unsafe.Add(data, dst.DType().Size()*(i*stride+col))
	if dst.DType() == tensor.BF16 {
		tensor.Round(unsafe.Slice((*tensor.BFloat16)(at), len(row)), row)
	} else {
		copy(unsafe.Slice((*float32)(at), len(row)), row)
	}
}

// A rowDecoder decodes one row at a time. Its kernels process whole vectors, so its rows are
// padded.
type rowDecoder struct {
	t      Tensor
	kernel quant.Decoder
	cols   int
	run    int // columns that share a scale in scales: 1, nvfp4.Block or format.MXBlock
	scales []float32
	values *[256]float32 // by code
	row    []float32
	padded tensor.Tensor // row and padding
	codes  []uint8       // the same for codes
}

func decoder(e *format.Element) quant.Decoder {
	numbers := e.Largest()
	if e.Infinity() != 0 {
		numbers = e.Infinity()
	}
	return quant.NewDecoder(e.Mantissa(), e.MinExponent(), e.SignBit(), e.Infinity(), numbers)
}

func newRowDecoder(ex *tensor.Exec, t Tensor) rowDecoder {
	_, width := t.BlockShape()
	stride := ceilDiv(t.Cols(), padding) * padding
	d := rowDecoder{t: t, kernel: decoder(t.Format.Element), cols: t.Cols(), run: 1, values: t.Format.Values()}
	switch {
	case width%format.MXBlock == 0:
		d.run = format.MXBlock
	case width == nvfp4.Block && t.Format.isNVFP4():
		d.run = width
	}
	d.scales = ex.New(tensor.FP32, stride).F32()
	d.codes = ex.New(tensor.UINT8, stride).U8()
	cleared(ex, d.scales)
	cleared(ex, d.codes)
	whole := ex.New(tensor.FP32, 1, stride)
	d.padded, d.row = whole, whole.F32()[:d.cols]
	return d
}

// loadScales reads the scales of a row of blocks.
func (d *rowDecoder) loadScales(block int) {
	_, width := d.t.BlockShape()
	run, n := d.run, ceilDiv(d.cols, d.run)
	if width == d.run && d.t.Format.Scale == ScaleE4M3 {
		values := format.E4M3.Values()
		for i, code := range rowFrom(d.t.Scales, block, 0) {
			d.scales[i] = values[code]
		}
		return
	}
	for b := range ceilDiv(d.cols, width) {
		scale := d.t.Scale(block, b)
		for i := b * width / run; i < min((b+1)*width/run, n); i++ {
			d.scales[i] = scale
		}
	}
}

// decode returns row i times its scales. The next call overwrites it.
func (d *rowDecoder) decode(i int) []float32 {
	if kernels >= quant.Lanes && d.run != nvfp4.Block {
		copy(d.codes, d.t.RowCodes(i, d.codes[:d.cols]))
		if d.run == format.MXBlock {
			quant.DecodeRows(d.padded.F32(), d.codes, d.scales, &d.kernel)
		} else {
			quant.DecodeCols(d.padded.F32(), d.codes, d.scales, &d.kernel)
		}
		return d.row
	}
	out := d.row
	for c, code := range d.t.RowCodes(i, d.codes[:d.cols]) {
		out[c] = d.values[code] * d.scales[c/d.run]
	}
	return d.row
}
