package mx

// Dequantization of any format in plain Go, one row of blocks at a time.

import "spmoe/tensor"

// dequantizeAny is Dequantize for any format.
func dequantizeAny(ex *tensor.Exec, dst tensor.Matrix, t Tensor) {
	if t.Format.Hadamard == 0 {
		dequantizeGeneral(ex, dst, t, true)
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	h := ex.New(tensor.FP32, dst.Rows, dst.Cols).Mat()
	dequantizeGeneral(ex, h, t, true)
	InverseHadamard(ex, dst, h, t.Format.Hadamard, t.Blocks, t.Ends)
}

// dequantizeGeneral decodes a matrix of any format, with or without the group scales. It does not undo a
// Hadamard transform.
func dequantizeGeneral(ex *tensor.Exec, dst tensor.Matrix, t Tensor, groupScales bool) {
	tensor.Parallel(ex, t.Scales.Dim(0), generalOpsPerElement*dst.Rows*dst.Cols, decodeArgs{dst, t, groupScales}, decodeBlocks)
}

// decodeArgs holds the arguments of decodeBlocks.
type decodeArgs struct {
	dst         tensor.Matrix
	t           Tensor
	groupScales bool
}

// decodeBlocks decodes rows [lo, hi) of blocks. Each product with a scale is rounded to FP32.
func decodeBlocks(ex *tensor.Exec, d decodeArgs, lo, hi int) {
	cols := d.dst.Cols
	_, width := d.t.BlockShape()
	values, row := d.t.Format.Values(), ex.New(tensor.FP32, 1, cols)
	scales, scratch := ex.New(tensor.FP32, cols).F32(), ex.New(tensor.UINT8, cols).U8()
	for at := range d.t.rowsOfBlocks(d.dst.Rows, lo, hi) {
		for c := range scales {
			if c%width == 0 {
				scales[c] = d.t.Scale(at.block, c/width)
			} else {
				scales[c] = scales[c-1]
			}
		}
		for r := at.first; r < at.last; r++ {
			out := row.F32()
			for c, code := range d.t.RowCodes(r, scratch) {
				out[c] = values[code] * scales[c]
			}
			if d.groupScales {
				tensor.Scale(out, d.t.GroupScale(at.group), out)
			}
			tensor.Convert(ex, d.dst.RowSlice(r, r+1), row.Mat())
		}
	}
}
