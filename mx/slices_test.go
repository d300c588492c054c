package mx_test

import (
	"bytes"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// Products with some rows or columns of a weight, in whole blocks, have the bits of those columns
// of the whole product. The cuts are unequal.
func TestProductsOfSlices(t *testing.T) {
	const m, n, k = 24, 384, 640
	x, dy, w := random(1, m, k), random(2, m, n), random(3, n, k)
	mx.EachTier(t, func(t *testing.T) {
		ex := tensor.NewExec()
		for name, formats := range map[string][2]mx.Format{
			"MXFP8": {mx.E4M3, mx.E4M3}, "MXINT8": {mx.INT8, mx.INT8}, "MXFP4": {mx.MXFP4, mx.MXFP4},
			"NVFP4": {mx.NVFP4, mx.NVFP4Tile}, "FP8 in blocks": {mx.FP8Row, mx.FP8Tile}, "FP8": {mx.FP8Tensor, mx.FP8Tensor},
		} {
			for _, sum := range []mx.Sum{mx.SumFP32, mx.SumB200} {
				if sum.Multiplies(formats[0], formats[1]) != nil {
					continue
				}
				forward := quantizeTo(ex, formats[1], mx.AlongRows, w, []int32{n})
				back := quantizeTo(ex, formats[1], mx.AlongCols, w, []int32{n})
				rows, grads := quantizeTo(ex, formats[0], mx.AlongRows, x, nil), quantizeTo(ex, formats[0], mx.AlongRows, dy, nil)
				y, dx := tensor.New(tensor.BF16, m, n), tensor.New(tensor.BF16, m, k)
				sum.MatMul(ex, y.Mat(), rows, forward)
				sum.Dgrad(ex, dx.Mat(), grads, back.Whole())
				parts, dparts := tensor.New(tensor.BF16, m, n), tensor.New(tensor.BF16, m, k)
				for _, cut := range [][2]int{{0, 128}, {128, n}} {
					sum.MatMul(ex, parts.Mat().ColSlice(cut[0], cut[1]), rows, forward.Whole().RowSlice(cut[0], cut[1]))
				}
				for _, cut := range [][2]int{{0, 256}, {256, k}} {
					sum.Dgrad(ex, dparts.Mat().ColSlice(cut[0], cut[1]), grads, back.Whole().ColSlice(ex, cut[0], cut[1]))
				}
				if !bytes.Equal(y.Bytes(), parts.Bytes()) {
					t.Errorf("%s, %v: columns of y differ", name, sum)
				}
				if !bytes.Equal(dx.Bytes(), dparts.Bytes()) {
					t.Errorf("%s, %v: columns of dx differ", name, sum)
				}
				ex.Reset()
			}
		}
	})
}
