package mx

import (
	"math"
	"math/bits"
	"math/rand/v2"
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

// TestQuantizeTransformed compares what MXFP4 keeps of transformed integers, whose transform is
// exact in BF16, with OCP MX written out: 1 bit of mantissa, scales by EVEN, as AMD's kernels
// round.
func TestQuantizeTransformed(t *testing.T) {
	const rows, cols = 96, 64
	integers := func(r *rand.Rand, _, col int) float32 { return float32(r.IntN(17)-8) * float32(1+col%3) }
	x, ex := filled(5, tensor.BF16, rows, cols, integers), tensor.NewExec()
	wide := tensor.New(tensor.FP32, rows, cols)
	tensor.Convert(ex, wide.Mat(), x.Mat())
	for _, f := range []Format{E2M1, MXFP4} {
		for _, signs := range []bool{false, true} {
			for _, d := range []Direction{AlongRows, AlongCols} {
				f := f
				f.Hadamard, f.NoSigns = 16, !signs
				lines, n, stride, next := rows, cols, 1, cols
				if d == AlongCols {
					lines, n, stride, next = cols, rows, cols, 1
				}
				want := make([]float64, rows*cols)
				for i := range lines {
					transformLine(want[i*next:], wide.F32()[i*next:], f, n, stride)
					roundLine(want[i*next:], n, stride)
				}
				eachTier(func(tier string) {
					q, got := New(nil, f, d, rows, cols), tensor.New(tensor.FP32, rows, cols)
					Cast{Format: f, Mode: EVEN}.Quantize(ex, q, x.Mat(), Draws{})
					q.Format.Hadamard, q.Format.NoSigns = 0, false // the codes, not the matrix before its transform
					Dequantize(ex, got.Mat(), q)
					for i, v := range got.F32() {
						if float64(v) != want[i] {
							t.Fatalf("%s, %v %v: (%d, %d) is %g, want %g", tier, f, d, i/cols, i%cols, v, want[i])
						}
					}
				})
			}
		}
	}
}

// roundLine rounds n elements of y, stride apart, to E2M1 in blocks of 32.
func roundLine(y []float64, n, stride int) {
	for at := 0; at < n; at += 32 {
		amax := 0.0
		for i := at; i < at+32; i++ {
			amax = max(amax, math.Abs(y[i*stride]))
		}
		_, e := math.Frexp(amax)    // amax = m·2^e, 1/2 <= m < 1
		scale := math.Ldexp(1, e-3) // the largest element is in [4, 8)
		if amax/scale >= 7 {
			scale *= 2
		}
		for i := at; i < at+32; i++ {
			v := math.Abs(y[i*stride] / scale)
			step := 0.5 // between numbers below 2
			switch {
			case v >= 4:
				step = 2
			case v >= 2:
				step = 1
			}
			y[i*stride] = math.Copysign(min(math.RoundToEven(v/step)*step, 6)*scale, y[i*stride])
		}
	}
}
