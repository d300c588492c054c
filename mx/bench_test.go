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

// measure reports the rate of quantize, which reads or writes x, and its ratio to the rate of
// copying x.
func measure(b *testing.B, x tensor.Tensor, quantize func()) {
	n := len(x.Bytes())
	speed.Report(b, "GB/s", float64(n), quantize, speed.Copy(n, n))
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
