package mx

import (
	"math"
	"math/bits"
	"testing"

	"spmoe/tensor"
)

// TestHadamard compares the transform with products of explicit matrices, in whole and partial
// runs, and its inverse with the matrix that was transformed.
func TestHadamard(t *testing.T) {
	const rows, cols = 59, 100 // 100 columns have runs of 64, 32 and 4, or 6 of 16 and 4
	ends := []int32{0, 16, 37, 38, rows}
	x, ex := filled(1, tensor.FP32, rows, cols, normal), tensor.NewExec()
	for _, f := range []Format{{Hadamard: 2}, {Hadamard: 16}, {Hadamard: 32}, {Hadamard: 64}, {Hadamard: 16, NoSigns: true}, {Hadamard: 64, NoSigns: true}} {
		for _, d := range []Direction{AlongRows, AlongCols} {
			want := make([]float64, rows*cols)
			if d == AlongRows {
				for r := range rows {
					transformLine(want[r*cols:], x.F32()[r*cols:], f, cols, 1)
				}
			}
			for g := range ends {
				lo, hi := group(ends, g)
				for c := 0; c < cols && d == AlongCols; c++ {
					transformLine(want[lo*cols+c:], x.F32()[lo*cols+c:], f, hi-lo, cols)
				}
			}
			eachTier(func(tier string) {
				got, back := tensor.New(tensor.FP32, rows, cols), tensor.New(tensor.FP32, rows, cols)
				Hadamard(ex, got.Mat(), x.Mat(), f, d, ends)
				InverseHadamard(ex, back.Mat(), got.Mat(), f, d, ends)
				for i, v := range got.F32() {
					if math.Abs(float64(v)-want[i]) > 1e-5 || math.Abs(float64(back.F32()[i]-x.F32()[i])) > 1e-5 {
						t.Fatalf("%s, %d points %v, no signs %t: (%d, %d) is %g and back %g, want %g and %g", tier, f.Hadamard, d, f.NoSigns, i/cols, i%cols, v, back.F32()[i], want[i], x.F32()[i])
					}
				}
			})
		}
	}
}

// transformLine sets n elements of y, stride apart, to H·diag(s)/√points times those of x, run by
// run. H[i][j] is -1 to the number of bits that i and j share.
func transformLine(y []float64, x []float32, f Format, n, stride int) {
	points := f.Hadamard
	// Transformer Engine's signs for 16 points. Those of all others are Philox4x32-10 of zeros.
	signs := [2]uint32{0x6627e8d5, 0xe169c58d}
	if points == 16 {
		signs = [2]uint32{}
		for i, s := range [16]int{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1} {
			if s < 0 {
				signs[0] |= 1 << i
			}
		}
	}
	if f.NoSigns {
		signs = [2]uint32{}
	}
	for at := 0; at < n; at += points {
		for points > n-at {
			points /= 2
		}
		for i := range points {
			sum := 0.0
			for j := range points {
				negative := bits.OnesCount(uint(i&j)) + int(signs[j/32]>>(j%32)&1)
				sum += math.Pow(-1, float64(negative)) * float64(x[(at+j)*stride])
			}
			y[(at+i)*stride] = sum / math.Sqrt(float64(points))
		}
	}
}
