package mx

import (
	"math"
	"testing"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// TestOddBlocksOfAnyFormat: a NaN or an infinity makes its block NaN, and changes no code of other
// blocks.
func TestOddBlocksOfAnyFormat(t *testing.T) {
	const rows, cols = 40, 64
	ex := tensor.NewExec()
	for _, f := range []Format{wide4, wide4Square, sixteen, FP8Row, {Name: "mx of 8", Element: E5M2.Element, Block: [2]int{1, 8}}} {
		for _, d := range []Direction{AlongRows, AlongCols} {
			for _, odd := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
				x := filled(1, tensor.FP32, rows, cols, normal)
				x.F32()[0] = 0 // the odd number goes here, so no largest magnitude changes
				quantized := func() (Tensor, []float32) {
					q, values := New(nil, f, d, rows, cols), tensor.New(tensor.FP32, rows, cols)
					Quantize(ex, q, x.Mat(), RCEIL)
					Dequantize(ex, values.Mat(), q)
					return q, values.F32()
				}
				want, values := quantized()
				x.F32()[0] = odd
				got, oddValues := quantized()
				height, width := got.BlockShape()
				for i, v := range oddValues {
					r, c := i/cols, i%cols
					switch inBlock := r < height && c < width; {
					case inBlock && (v == v || got.Code(r, c) != f.NaN()):
						t.Fatalf("%v %v, %g: (%d, %d) is %g in its block, code %#x", f, d, odd, r, c, v, got.Code(r, c))
					case !inBlock && (v != values[i] || got.Code(r, c) != want.Code(r, c)):
						t.Fatalf("%v %v, %g: (%d, %d) is %g, without it %g", f, d, odd, r, c, v, values[i])
					}
				}
			}
		}
	}
}

// TestFP8Tensor: elements are multiplied by 448 over the largest finite magnitude of their group
// and rounded, in both directions alike. NaN stays in its element, and an infinity saturates.
func TestFP8Tensor(t *testing.T) {
	const rows, cols = 70, 64
	ex, ends := tensor.NewExec(), []int32{20, 20, 69, rows}
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		values := filled(1, tensor.FP32, rows, cols, spread)
		clear(values.F32()[69*cols:]) // the last group is zeros
		odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-30}
		for i, v := range odd {
			values.F32()[7*cols+i] = v
		}
		x := tensor.New(dtype, rows, cols)
		tensor.Convert(ex, x.Mat(), values.Mat())
		tensor.Convert(ex, values.Mat(), x.Mat())
		for _, d := range []Direction{AlongRows, AlongCols} {
			q, decoded := NewGrouped(nil, FP8Tensor, d, cols, ends), tensor.New(tensor.FP32, rows, cols)
			Quantize(ex, q, x.Mat(), RCEIL)
			Dequantize(ex, decoded.Mat(), q)
			for g := range ends {
				lo, hi := group(ends, g)
				most := float32(1e-12)
				for _, v := range values.F32()[lo*cols : hi*cols] {
					if m := float32(math.Abs(float64(v))); m-m == 0 {
						most = max(most, m)
					}
				}
				factor := 448 / most
				for i := lo * cols; i < hi*cols; i++ {
					code := q.Code(i/cols, i%cols)
					if want := format.E4M3.Encode(values.F32()[i] * factor); code != want {
						t.Fatalf("%v %v: %g has code %#x, want %#x", dtype, d, values.F32()[i], code, want)
					}
					if want := format.E4M3.Values()[code] * (1 / factor); decoded.F32()[i] != want && want == want {
						t.Fatalf("%v %v: %g is decoded as %g, want %g", dtype, d, values.F32()[i], decoded.F32()[i], want)
					}
				}
			}
			if q.Code(7, 0) != FP8Tensor.NaN() || q.Code(7, 1) != format.E4M3.Encode(448) {
				t.Errorf("%v %v: NaN has code %#x, infinity %#x", dtype, d, q.Code(7, 0), q.Code(7, 1))
			}
		}
	}
}

// Rows are wider than a panel at real widths. Its parts are quantized as matrices of their own are.
func TestWideRows(t *testing.T) {
	const cols, half = 32768, 16384
	ex := tensor.NewExec()
	for _, f := range []Format{FP8Row, FP8RowPow2, NVFP4} {
		x := filled(3, tensor.BF16, 2, cols, spread)
		whole := New(nil, f, AlongRows, 2, cols)
		Quantize(ex, whole, x.Mat(), RCEIL)
		for at := 0; at < cols && f.Scale != ScaleE4M3; at += half {
			part := New(nil, f, AlongRows, 2, half)
			Quantize(ex, part, x.Mat().ColSlice(at, at+half), RCEIL)
			for i := range half {
				if got, want := whole.Code(1, at+i), part.Code(1, i); got != want {
					t.Fatalf("%v: code %d is %#x, want %#x", f, at+i, got, want)
				}
			}
		}
	}
}
