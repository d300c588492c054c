package mx

import (
	"math"
	"testing"

	"spmoe/tensor"
)

// TestOddBlocksOfAnyFormat: a NaN or an infinity makes its own block NaN. The codes of all other
// blocks do not change.
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

// TestThreadsQuantizeAlike: a matrix of any format has the same codes for any number of threads.
func TestThreadsQuantizeAlike(t *testing.T) {
	x := filled(1, tensor.BF16, 300, 512, spread)
	for _, f := range []Format{NVFP4, NVFP4Tile, FP8Row, FP8Tile} {
		for _, d := range []Direction{AlongRows, AlongCols} {
			var all []Tensor
			for _, threads := range []int{1, 3} {
				ex := tensor.NewParallelExec(threads)
				q := NewGrouped(nil, f, d, 512, []int32{0, 77, 300})
				Quantize(ex, q, x.Mat(), RCEIL)
				ex.Close()
				all = append(all, q)
			}
			if string(all[0].Codes.Bytes()) != string(all[1].Codes.Bytes()) || string(all[0].Scales.Bytes()) != string(all[1].Scales.Bytes()) {
				t.Errorf("%v %v: three threads and one thread give different codes", f, d)
			}
		}
	}
}
