package mx

// Dequantisation: codes and scales back to numbers.

import (
	"fmt"

	"spmoe/tensor"
)

// Dequantize sets dst, [rows, cols] FP32 or BF16, to the values of t. They are exact in FP32 save where they exceed its
// range, and rounded once to BF16. Every element of a block with NaNScale is NaN.
func Dequantize(ex *tensor.Exec, dst tensor.Matrix, t Tensor) {
	if dst.Rows != t.Rows() || dst.Cols != t.Cols() {
		panic(fmt.Sprintf("mx: [%d, %d] dequantised into [%d, %d]", t.Rows(), t.Cols(), dst.Rows, dst.Cols))
	}
	values := t.Format.values()
	if t.Ends == nil {
		dequantize(ex, dst, t, &values)
		return
	}
	for g := range t.Ends {
		lo, hi := group(t.Ends, g)
		dequantize(ex, dst.RowSlice(lo, hi), t.Group(g), &values)
	}
}

func dequantize(ex *tensor.Exec, dst tensor.Matrix, t Tensor, values *[256]float32) {
	cols, codes, scales := t.Cols(), t.Codes.U8(), t.Scales.U8()
	mark := ex.Mark()
	defer ex.Release(mark)
	row := ex.New(tensor.FP32, 1, cols)
	out := row.F32()
	for r := range t.Rows() {
		in := codes[r*cols:][:cols]
		if t.Blocks == AlongCols {
			of := scales[r/BlockSize*cols:][:cols]
			for c, code := range in {
				out[c] = values[code] * DecodeScale(of[c])
			}
		} else {
			of := scales[r*blocks(cols):][:blocks(cols)]
			for c, code := range in {
				out[c] = values[code] * DecodeScale(of[c/BlockSize])
			}
		}
		tensor.Convert(ex, dst.RowSlice(r, r+1), row.Mat())
	}
}
