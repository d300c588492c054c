package mx

import (
	"bytes"
	"fmt"
	"testing"

	"spmoe/internal/testing/speed"
	"spmoe/tensor"
)

// TestStreamed: streamed products have the bits of products with a decoded copy, on any number of
// threads, with empty and uneven groups.
func TestStreamed(t *testing.T) {
	for _, format := range []Format{NVFP4Tile, NVFP4} {
		for _, c := range []struct {
			k, outputs int
			ends       []int32
		}{
			{64, 16, []int32{3}}, {96, 80, []int32{0, 5, 5, 38}}, {2048, 144, []int32{8, 16}}, {40, 48, []int32{1, 2, 3}},
		} {
			groups, rows := len(c.ends), int(c.ends[len(c.ends)-1])
			x, w := New(nil, NVFP4, AlongRows, rows, c.k), New(nil, format, AlongRows, groups*c.outputs, c.k)
			ex := tensor.NewExec()
			Quantize(ex, x, filled(1, tensor.BF16, rows, c.k, normal).Mat(), RCEIL)
			Quantize(ex, w, filled(2, tensor.BF16, groups*c.outputs, c.k, normal).Mat(), RCEIL)
			if !w.Format.isNVFP4() {
				t.Skip("no kernels for NVFP4 on this tier")
			}
			y := tensor.New(tensor.BF16, rows, c.outputs)
			if !streams(y.Mat(), x, w, groups) {
				t.Fatalf("%v %v: not streamed", format, c)
			}
			p := decode(ex, x, w)
			want := tensor.New(tensor.BF16, rows, c.outputs)
			tensor.GroupedMatMulTimes(ex, want.Mat(), p.a.Mat(), p.groups(groups), c.ends, p.scales(groups))
			p.release()
			for _, threads := range []int{1, 2} {
				ex := tensor.NewParallelExec(threads)
				clear(y.Bytes())
				multiplyStreamed(ex, y.Mat(), x, w, c.ends)
				ex.Close()
				if !bytes.Equal(y.Bytes(), want.Bytes()) {
					t.Errorf("%v %v: other bits on %d threads", format, c, threads)
				}
			}
		}
	}
}

// BenchmarkStreamed multiplies 8 rows per expert with the weights of 64 experts of 16B, in NVFP4
// and in BF16 in turns, on two threads. The weights exceed the caches.
func BenchmarkStreamed(b *testing.B) {
	const groups, rows = 64, 8
	for _, s := range [][2]int{{2048, 1408}, {2048, 2816}, {1408, 2048}} {
		b.Run(fmt.Sprintf("%dx%d", s[0], s[1]), func(b *testing.B) {
			k, outputs := s[0], s[1]
			ex := tensor.NewParallelExec(2)
			defer ex.Close()
			x, w := repeated(tensor.BF16, groups*rows, k), repeated(tensor.BF16, groups*outputs, k)
			qx, qw := New(nil, NVFP4, AlongRows, groups*rows, k), New(nil, NVFP4Tile, AlongRows, groups*outputs, k)
			Quantize(ex, qx, x.Mat(), RCEIL)
			Quantize(ex, qw, w.Mat(), RCEIL)
			ends := make([]int32, groups)
			for g := range ends {
				ends[g] = int32((g + 1) * rows)
			}
			y := tensor.New(tensor.BF16, groups*rows, outputs)
			bytes := float64(len(qw.Codes.Bytes()) + len(qw.Scales.Bytes())) // of weights
			speed.Report(b, "GB/s", bytes, func() { SumFP32.GroupedMatMul(ex, y.Mat(), qx, qw, ends) }, speed.Copy(64<<20, 64<<20),
				speed.Work("of-bf16", bytes, func() { tensor.GroupedMatMul(ex, y.Mat(), x.Mat(), w.Reshape(groups, outputs, k), ends) }))
		})
	}
}
