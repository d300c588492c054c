package tensorcore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/gemm"
)

// BenchmarkProducts reports GFLOP/s on one core, and the share of the BF16 kernel's speed for the
// same shape, measured in turns.
func BenchmarkProducts(b *testing.B) {
	e4m3 := codes(format.E4M3)[0]
	for _, p := range []struct {
		Plan
		kind numberKind
	}{{H100BF16, bf16Kinds[0]}, {H100FP8, e4m3}, {H100FastFP8, e4m3}, {B200FP8, e4m3}} {
		for _, n := range []int{256, 1024} {
			b.Run(fmt.Sprintf("%s/promote=%d/%d", p.Name, p.Promote, n), func(b *testing.B) { benchmarkProduct(b, p.Plan, p.kind, n) })
		}
	}
}

func benchmarkProduct(b *testing.B, plan Plan, kind numberKind, n int) {
	r := rand.New(rand.NewPCG(1, 2))
	left, right := drawMatrix(r, kind, n, n), drawMatrix(r, kind, n, n)
	words := make([]uint16, 2*n*n)
	for i, x := range append(left.values, right.values...) {
		words[i] = uint16(*(*uint32)(unsafe.Pointer(&x)) >> 16)
	}
	view := func(first int) gemm.View {
		return gemm.View{Ptr: unsafe.Pointer(&words[first]), Rows: n, Cols: n, RowStride: n, ColStride: 1}
	}
	out := make([]float32, n*n)
	c := gemm.View{Ptr: unsafe.Pointer(&out[0]), Rows: n, Cols: n, RowStride: n, ColStride: 1}
	bt := view(n * n)
	bt.RowStride, bt.ColStride = 1, n
	var scratch gemm.Scratch
	memory := NewRoom(nil)
	room := &memory
	job := Job{Plan: plan, A: left.source(), B: right.source()}
	job.Multiply(room, out, n, 0, n, 0, n)
	gemm.BF16Times(&scratch, c, view(0), bt, 0, 0, false)
	var fast time.Duration
	b.ResetTimer()
	for range b.N {
		job.Multiply(room, out, n, 0, n, 0, n)
		b.StopTimer()
		start := time.Now()
		gemm.BF16Times(&scratch, c, view(0), bt, 0, 0, false)
		fast += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
	b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/float64(fast.Nanoseconds()), "BF16-GFLOP/s")
	b.ReportMetric(float64(b.Elapsed())/float64(fast), "times-BF16")
}
