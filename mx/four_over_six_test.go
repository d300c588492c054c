package mx

import (
	"testing"

	"spmoe/tensor"
)

// TestFourOverSix: blocks whose elements are multiples of a quarter of their largest magnitude take
// the larger scale, and those of a sixth keep the usual one. Both are then exact.
func TestFourOverSix(t *testing.T) {
	const rows, cols = 16, 32
	grids := [2][]float32{{6, 4, 3, 2, 1.5, 1, 0.5, 0, -6, -4, -3, 2, 0.5, 1, -1, 6}, {8, 6, 4, 2, 8, -6, 4, 0, -2, 6, 6, 8, -4, 2, 6, -6}}
	ex := tensor.NewExec()
	for _, d := range []Direction{AlongRows, AlongCols} {
		for _, square := range []bool{false, true} {
			f := NVFP4
			if square {
				f = NVFP4Tile
			}
			f.FourOverSix = true
			x := tensor.New(tensor.BF16, rows, cols)
			for r := range rows {
				for c := range cols {
					// Two columns of blocks of 16x16. Each line has the numbers of its grid.
					x.BF16()[r*cols+c] = tensor.ToBFloat16(grids[c/16][(r+c)%16])
				}
			}
			q, values := New(nil, f, d, rows, cols), tensor.New(tensor.FP32, rows, cols)
			Quantize(ex, q, x.Mat(), RCEIL)
			Dequantize(ex, values.Mat(), q)
			for i, want := range x.BF16() {
				if got := values.F32()[i]; got != want.Float32() {
					t.Fatalf("%v %v: (%d, %d) is %g, want %g", f, d, i/cols, i%cols, got, want.Float32())
				}
			}
		}
	}
}
