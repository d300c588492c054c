package mx_test

import (
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// nvfp4RHT is NVFP4 for the operands of wgrad.
var nvfp4RHT = withHadamard(mx.NVFP4, 16)

func withHadamard(f mx.Format, points int) mx.Format {
	f.Hadamard = points
	return f
}

// TestGoldenNVFP4Linear compares all three products with exact products of the reference's
// operands. Those of wgrad are transformed.
func TestGoldenNVFP4Linear(t *testing.T) {
	f, ex := open(t, "nvfp4_linear.safetensors"), tensor.NewExec()
	x, w, dy := f.tensor("x"), f.tensor("w"), f.tensor("dy")
	quantized := func(format mx.Format, d mx.Direction, m tensor.Tensor) mx.Tensor {
		q := mx.New(nil, format, d, m.Dim(0), m.Dim(1))
		mx.Quantize(ex, q, m.Mat(), mx.RCEIL)
		return q
	}
	weight := quantized(mx.NVFP4Tile, mx.AlongRows, w)

	y := tensor.New(tensor.FP32, x.Dim(0), w.Dim(0))
	mx.SumFP32.MatMul(ex, y.Mat(), quantized(mx.NVFP4, mx.AlongRows, x), weight)
	compareF64(t, "y", y.F32(), f.f64("y_f64"))

	dx := tensor.New(tensor.FP32, x.Dims()...)
	mx.SumFP32.Dgrad(ex, dx.Mat(), quantized(mx.NVFP4, mx.AlongRows, dy), weight.WithBlocks(mx.AlongCols))
	compareF64(t, "dx", dx.F32(), f.f64("dx_f64"))

	dw := tensor.New(tensor.FP32, w.Dims()...)
	mx.SumFP32.Wgrad(ex, dw.Mat(), quantized(nvfp4RHT, mx.AlongCols, dy), quantized(nvfp4RHT, mx.AlongCols, x), 0, false)
	compareF64(t, "dw", dw.F32(), f.f64("dw_f64"))
}
