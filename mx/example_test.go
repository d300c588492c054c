package mx_test

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// A linear layer y = x·Wᵀ in MXFP8: both operands are quantized along the dimension that is summed
// over.
func ExampleMatMul() {
	ex := tensor.NewExec()
	quantized := func(rows, cols int, value float32) mx.Tensor {
		t := tensor.New(tensor.FP32, rows, cols)
		for i := range t.F32() {
			t.F32()[i] = value
		}
		q := mx.New(ex, mx.E4M3, mx.AlongRows, rows, cols)
		mx.Quantize(ex, q, t.Mat(), mx.RCEIL)
		return q
	}
	x, w := quantized(1, 64, 1.5), quantized(2, 64, -0.25)
	y := tensor.New(tensor.FP32, 1, 2)
	mx.SumFP32.MatMul(ex, y.Mat(), x, w)
	fmt.Println(y.F32())
	// Output: [-24 -24]
}
