package mx

import (
	"slices"
	"testing"

	"spmoe/tensor"
)

// TestWarmCallsDoNotAllocate: quantizing and multiplying take no memory of the Go heap once arenas
// have grown.
func TestWarmCallsDoNotAllocate(t *testing.T) {
	const rows, n, k = 48, 64, 128
	ex, transformed, shrunk := tensor.NewExec(), NVFP4, MXFP4
	transformed.Hadamard, shrunk.Hadamard, shrunk.Shrink = 16, 64, true
	x, dy, w := filled(1, tensor.BF16, rows, k, normal), filled(2, tensor.BF16, rows, n, normal), filled(3, tensor.BF16, n, k, normal)
	y, dw := tensor.New(tensor.BF16, rows, n), tensor.New(tensor.FP32, n, k)
	for _, f := range []struct{ row, tile, col Format }{{NVFP4, NVFP4Tile, transformed}, {FP8Row, FP8Tile, FP8Row}, {FP8RowPow2, FP8TilePow2, FP8RowPow2}, {MXFP4, MXFP4, shrunk}, {E4M3, E4M3, E4M3}, {INT8, INT8, INT8}} {
		inputs, weights := New(nil, f.row, AlongRows, rows, k), New(nil, f.tile, AlongRows, n, k)
		inputCols, gradients := New(nil, f.col, AlongCols, rows, k), New(nil, f.col, AlongCols, rows, n)
		sums := slices.DeleteFunc([]Sum{SumFP32, SumH100, SumB200}, func(s Sum) bool { return s.Multiplies(f.row, f.tile) != nil })
		step := func() {
			mark := ex.Mark()
			defer ex.Release(mark)
			Cast{Format: f.row}.Quantize(ex, inputs, x.Mat(), Draws{})
			Cast{Format: f.tile}.Quantize(ex, weights, w.Mat(), Draws{})
			Cast{Format: f.col}.Quantize(ex, inputCols, x.Mat(), Draws{})
			Cast{Format: f.col, Rounding: Stochastic}.Quantize(ex, gradients, dy.Mat(), Draws{})
			for _, sum := range sums {
				sum.MatMul(ex, y.Mat(), inputs, weights)
				sum.Wgrad(ex, dw.Mat(), gradients, inputCols, 0, true)
				sum.Multiply(ex, y.Mat(), x.Mat(), w.Mat().T())
			}
		}
		step()
		if n := testing.AllocsPerRun(5, step); n > 0 {
			t.Errorf("%v: %v objects per call", f.row, n)
		}
	}
}
