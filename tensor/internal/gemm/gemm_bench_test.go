package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/cpu/cputest"
)

// Shapes of training steps. aT and bT say that an operand is contiguous across k. bT is false for
// weights in forward products (b is the view Wᵀ) and true for data gradients. Weight gradients have
// both. room is added to the stride, as for a view of a wider matrix.
var benchShapes = []struct {
	name    string
	m, n, k int
	aT, bT  bool
	room    int
}{
	{"large", 1024, 1024, 1024, false, false, 0},
	{"wide", 512, 2048, 7168, false, false, 0},
	{"16B", 1024, 1408, 2048, false, false, 0},
	{"16B", 1024, 2048, 1408, false, false, 0},
	{"dgrad16B", 1024, 2048, 1408, false, true, 0},
	{"wgrad16B", 1408, 2048, 1024, true, true, 0},
	{"forward", 64, 512, 256, false, false, 0},
	{"forward", 256, 128, 256, false, false, 0},
	{"forward", 512, 256, 128, false, false, 0},
	{"forward", 8, 512, 256, false, false, 0},
	{"dgrad", 64, 256, 512, false, true, 0},
	{"dgrad", 256, 256, 128, false, true, 0},
	{"wgrad", 256, 256, 64, true, true, 0},
	{"wgrad", 512, 256, 512, true, true, 0},
	{"scores", 64, 256, 48, false, false, 720},
	{"context", 64, 48, 256, false, true, 720},
}

func benchView[T uint16 | float32](r *rand.Rand, rows, cols int, transposed bool, room int, value func(float32) T) View {
	if transposed {
		return benchView(r, cols, rows, false, room, value).transposed()
	}
	memory := make([]T, rows*(cols+room))
	for i := range memory {
		memory[i] = value(float32(r.NormFloat64()))
	}
	return strided(unsafe.Pointer(&memory[0]), rows, cols, cols+room, 1)
}

func BenchmarkBF16(b *testing.B) {
	benchmark(b, roundBF16, func(ks *kernels, s *Scratch, c, x, y View) { ks.bf16(s, c, x, y, mode{}) },
		func(ks *kernels) func(int) float64 { return ks.peakBF16 })
}

func BenchmarkBF16ToBF16(b *testing.B) {
	benchmark(b, roundBF16, func(ks *kernels, s *Scratch, c, x, y View) { ks.bf16Rounded(s, c, x, y, mode{}) },
		func(ks *kernels) func(int) float64 { return ks.peakBF16 })
}

func BenchmarkFP32(b *testing.B) {
	benchmark(b, func(x float32) float32 { return x },
		func(ks *kernels, s *Scratch, c, x, y View) { ks.fp32(s, c, x, y, mode{}) },
		func(ks *kernels) func(int) float64 { return ks.peakFP32 })
}

// benchmark compares the kernel with the peak loop.
func benchmark[T uint16 | float32](b *testing.B, value func(float32) T, multiply func(ks *kernels, s *Scratch, c, x, y View),
	peak func(ks *kernels) func(int) float64) {
	for _, tier := range table.Tiers()[1:] {
		ks := table[tier]
		for _, sh := range benchShapes {
			b.Run(fmt.Sprintf("%v/%s/%dx%dx%d", tier, sh.name, sh.m, sh.n, sh.k), func(b *testing.B) {
				cputest.Need(b, tier)
				r := rand.New(rand.NewPCG(1, 1))
				x := benchView(r, sh.m, sh.k, sh.aT, sh.room, value)
				y := benchView(r, sh.k, sh.n, !sh.bT, sh.room, value)
				c := benchView(r, sh.m, sh.n, false, sh.room, func(x float32) float32 { return x })
				var s Scratch
				flops := 2 * float64(sh.m) * float64(sh.n) * float64(sh.k)
				speed.Report(b, "GFLOP/s", flops, func() { multiply(ks, &s, c, x, y) },
					speed.Limit{Share: "of-peak", Rate: func() float64 { return rate(peak(ks), 100*time.Microsecond) }})
			})
		}
	}
}
