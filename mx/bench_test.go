package mx

// Quantization in input bytes per second, compared with a copy timed alternately with it.

import (
	"fmt"
	"testing"
	"time"

	"spmoe/internal/testing/speed"
	"spmoe/tensor"
)

// repeated fills a matrix with the same normal numbers over and over, which is quick.
func repeated(dtype tensor.DType, rows, cols int) tensor.Tensor {
	x, some := tensor.New(dtype, rows, cols), filled(1, dtype, 64, 1024, normal).Bytes()
	for b := x.Bytes(); len(b) > 0; {
		b = b[copy(b, some):]
	}
	return x
}

// BenchmarkQuantize takes matrices that fit the second-level cache and ones from memory.
func BenchmarkQuantize(b *testing.B) {
	for _, dtype := range []tensor.DType{tensor.BF16, tensor.FP32} {
		for _, s := range []struct{ rows, cols int }{{64, 1024}, {8192, 2048}, {2048, 7168}} {
			b.Run(fmt.Sprintf("%v/%dx%d", dtype, s.rows, s.cols), func(b *testing.B) {
				x := repeated(dtype, s.rows, s.cols)
				for _, f := range []Format{E4M3, E5M2, INT8} {
					rows, cols := New(nil, f, AlongRows, s.rows, s.cols), New(nil, f, AlongCols, s.rows, s.cols)
					ex := tensor.NewExec()
					b.Run(f.String()+"/rows", func(b *testing.B) { measure(b, x, func() { Quantize(ex, rows, x.Mat(), RCEIL) }) })
					b.Run(f.String()+"/cols", func(b *testing.B) { measure(b, x, func() { Quantize(ex, cols, x.Mat(), RCEIL) }) })
					b.Run(f.String()+"/both", func(b *testing.B) { measure(b, x, func() { QuantizeBoth(ex, rows, cols, x.Mat(), RCEIL) }) })
				}
			})
		}
	}
}

// BenchmarkQuantizeTiers takes a matrix that fits the second-level cache with each set of kernels.
func BenchmarkQuantizeTiers(b *testing.B) {
	eachTier(func(tier string) {
		for _, dtype := range []tensor.DType{tensor.BF16, tensor.FP32} {
			x, ex := repeated(dtype, 64, 1024), tensor.NewExec()
			rows, cols := New(nil, E4M3, AlongRows, 64, 1024), New(nil, E4M3, AlongCols, 64, 1024)
			b.Run(fmt.Sprintf("%s/%v", tier, dtype), func(b *testing.B) {
				measure(b, x, func() { QuantizeBoth(ex, rows, cols, x.Mat(), RCEIL) })
			})
		}
	})
}

// BenchmarkDequantize counts the bytes of the result.
func BenchmarkDequantize(b *testing.B) {
	ex := tensor.NewExec()
	for _, dtype := range []tensor.DType{tensor.BF16, tensor.FP32} {
		for _, d := range []Direction{AlongRows, AlongCols} {
			x, q := repeated(dtype, 64, 1024), New(nil, E4M3, d, 64, 1024)
			Quantize(ex, q, x.Mat(), RCEIL)
			eachTier(func(tier string) {
				b.Run(fmt.Sprintf("%v/%v/%s", dtype, d, tier), func(b *testing.B) { measure(b, x, func() { Dequantize(ex, x.Mat(), q) }) })
			})
		}
	}
}

// measure reports the rate of quantize, which reads or writes x, and its ratio to the rate of
// copying x.
func measure(b *testing.B, x tensor.Tensor, quantize func()) {
	n := len(x.Bytes())
	speed.Report(b, "GB/s", float64(n), quantize, speed.Copy(n, n))
}

// BenchmarkGeneral measures quantizing and decoding in formats that are not OCP MX, for matrices of
// 2048 rows with the widths of small (512), 16B (2048, 1408) and 671B (7168).
func BenchmarkGeneral(b *testing.B) {
	const rows = 2048
	ex, transformed := tensor.NewExec(), NVFP4
	transformed.Hadamard = 16
	for _, cols := range []int{512, 1408, 2048, 7168} {
		x, out := repeated(tensor.BF16, rows, cols), tensor.New(tensor.BF16, rows, cols)
		for _, c := range []struct {
			name   string
			along  Direction
			cast   Cast
			decode bool // measure decoding too
		}{
			{"nvfp4/rows", AlongRows, Cast{Format: NVFP4}, true},
			{"nvfp4/rows/stochastic", AlongRows, Cast{Format: NVFP4, Rounding: Stochastic}, false},
			{"nvfp4/cols/hadamard", AlongCols, Cast{Format: transformed}, true},
			{"nvfp4/cols/hadamard/stochastic", AlongCols, Cast{Format: transformed, Rounding: Stochastic}, false},
			{"nvfp4/tile", AlongRows, Cast{Format: NVFP4Tile}, true},
			{"fp8/rows", AlongRows, Cast{Format: FP8RowPow2}, true},
			{"fp8/cols", AlongCols, Cast{Format: FP8RowPow2}, true},
			{"fp8/tile", AlongRows, Cast{Format: FP8TilePow2}, true},
		} {
			q := New(nil, c.cast.Format, c.along, rows, cols)
			run := func(name string, do func()) {
				b.Run(fmt.Sprintf("%d/%s/%s", cols, c.name, name), func(b *testing.B) { measure(b, x, do) })
			}
			run("quantize", func() { c.cast.Quantize(ex, q, x.Mat(), Draws{}) })
			if c.decode {
				run("decode", func() { dequantizeGeneral(ex, out.Mat(), q, blockScales) })
			}
		}
	}
}

// BenchmarkProducts measures forward products of quantized operands, with the time to decode them,
// against that of BF16 operands. The widths are those of 16B and 671B.
func BenchmarkProducts(b *testing.B) {
	const rows = 1024
	ex := tensor.NewExec()
	for _, s := range []struct{ k, n int }{{2048, 1408}, {2048, 10944}, {7168, 2048}} {
		x, w, y := repeated(tensor.BF16, rows, s.k), repeated(tensor.BF16, s.n, s.k), tensor.New(tensor.BF16, rows, s.n)
		for _, f := range []struct{ row, tile Format }{{NVFP4, NVFP4Tile}, {FP8Row, FP8Tile}, {FP8RowPow2, FP8TilePow2}} {
			b.Run(fmt.Sprintf("%dx%d/%v", s.k, s.n, f.row), func(b *testing.B) {
				qx, qw := New(nil, f.row, AlongRows, rows, s.k), New(nil, f.tile, AlongRows, s.n, s.k)
				Quantize(ex, qx, x.Mat(), RCEIL)
				Quantize(ex, qw, w.Mat(), RCEIL)
				flops := 2 * float64(rows*s.k*s.n)
				speed.Report(b, "GFLOP/s", flops, func() { SumFP32.MatMul(ex, y.Mat(), qx, qw) },
					speed.Limit{Share: "of-peak", Rate: func() float64 { return tensor.PeakCore(tensor.BF16, 200*time.Microsecond) }},
					speed.Work("of-bf16", flops, func() { tensor.MatMul(ex, y.Mat(), x.Mat(), w.Mat().T()) }))
			})
		}
	}
}
