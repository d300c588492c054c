package trainer

import (
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/launcher/trainer/observe"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// operandOf quantizes values [rows, cols] along rows.
func operandOf(ex *tensor.Exec, values []float32, cols int, dtype tensor.DType, f mx.Format, mode mx.ScaleMode) moe.Quantized {
	rows := len(values) / cols
	x, wide := ex.New(dtype, rows, cols), ex.New(tensor.FP32, rows, cols)
	copy(wide.F32(), values)
	tensor.Convert(ex, x.Mat(), wide.Mat())
	q := moe.Quantized{Format: f, X: x.Mat(), Rows: mx.New(ex, f, mx.AlongRows, rows, cols)}
	mx.Quantize(ex, q.Rows, q.X, mode)
	return q
}

// byDefinition is what measure computes, one element after the other in float64.
func byDefinition(ex *tensor.Exec, q moe.Quantized) (sum observe.QuantizationError) {
	rows, cols := q.X.Rows, q.X.Cols
	x, decoded := ex.New(tensor.FP32, rows, cols), ex.New(tensor.FP32, rows, cols)
	tensor.Convert(ex, x.Mat(), q.X)
	mx.Dequantize(ex, decoded.Mat(), q.Rows)
	for i, v := range x.F32() {
		d := decoded.F32()[i]
		limit := q.Format.Max() * mx.DecodeScale(q.Rows.Scales.U8()[i/cols*q.Rows.Scales.Dim(1)+i%cols/format.MXBlock])
		sum.Elements++
		sum.Signal += float64(v) * float64(v)
		sum.Noise += (float64(v) - float64(d)) * (float64(v) - float64(d))
		if math.Abs(float64(v)) > float64(limit) {
			sum.Saturated++
		}
		if v != 0 && d == 0 {
			sum.Flushed++
		}
	}
	return sum
}

// Each format, scale rule and input type, with numbers of all magnitudes, on sizes that are no
// multiples of blocks and panels.
func TestMeasure(t *testing.T) {
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(1, 2))
	saturated, flushed := 0.0, 0.0
	for _, size := range [][2]int{{1, 1}, {33, 70}, {0, 64}} {
		values := make([]float32, size[0]*size[1])
		for i := range values {
			values[i] = float32(rng.NormFloat64() * math.Exp2(12*rng.NormFloat64()))
			if i%17 == 0 {
				values[i] = 0
			}
		}
		for _, f := range []mx.Format{mx.E4M3, mx.E5M2, mx.INT8} {
			for _, mode := range mx.ScaleModes() {
				for _, dtype := range []tensor.DType{tensor.BF16, tensor.FP32} {
					for _, magnitude := range []float32{1, 1e-30} {
						for i := range values {
							values[i] *= magnitude
						}
						q := operandOf(ex, values, size[1], dtype, f, mode)
						for i := range values {
							values[i] /= magnitude
						}
						got, want := observe.Measure(ex, q), byDefinition(ex, q)
						near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*b }
						if got.Elements != want.Elements || got.Saturated != want.Saturated || got.Flushed != want.Flushed ||
							!near(got.Signal, want.Signal) ||
							!near(got.Noise, want.Noise) {
							t.Errorf("%v %v %v %v, magnitude %g: %+v, want %+v", size, f, mode, dtype, magnitude, got, want)
						}
						saturated, flushed = saturated+want.Saturated, flushed+want.Flushed
						if mode == mx.RCEIL && got.Saturated > 0 {
							t.Errorf("%v %v: RCEIL saturates %g values", size, f, got.Saturated)
						}
					}
				}
			}
		}
	}
	if saturated == 0 || flushed == 0 {
		t.Errorf("%g values saturated and %g flushed: nothing was tested", saturated, flushed)
	}
}
