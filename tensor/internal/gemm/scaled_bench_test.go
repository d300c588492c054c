package gemm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/format"
	"spmoe/tensor/internal/pages"
)

// Shapes of products with quantized operands. Streamed weights rotate over more memory than any
// cache holds.
var scaledShapes = []struct {
	m, n, k  int
	aT, bT   bool // contiguous across k: bT is a data gradient, both a weight gradient
	streamed bool
}{
	{1024, 1024, 1024, false, false, false},
	{1024, 1024, 1024, false, true, false},
	{1024, 1024, 1024, true, true, false},
	{512, 2048, 7168, false, false, true},
	{64, 512, 256, false, false, false},
	{64, 512, 256, false, true, false},
	{64, 512, 256, true, true, false},
	{512, 256, 300, true, true, false}, // the tokens of an expert
	{1, 2048, 7168, false, false, true},
	{4, 2048, 7168, false, false, true},
	{8, 2048, 7168, false, false, true},
	{12, 2048, 7168, false, false, true},
	{32, 2048, 7168, false, false, true},
	{4, 2048, 7168, false, true, true},
}

// rotation is the number of bytes of codes that are streamed: too many for any cache.
var rotation = max(160<<20, 2*cpuid.CPU.Cache.L3)

// BenchmarkMX compares block-scaled products with the peak loop and with products of BF16.
func BenchmarkMX(b *testing.B) {
	for _, f := range []*format.Element{format.E4M3, format.INT8} {
		for _, sh := range scaledShapes {
			b.Run(fmt.Sprintf("%v/%dx%dx%d,%v,%v", f, sh.m, sh.n, sh.k, sh.aT, sh.bT), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				copies := 1
				if sh.streamed {
					copies = rotation / (sh.n * sh.k)
				}
				x, xs := benchView(r, sh.m, sh.k, sh.aT, 0, roundBF16), benchScaled(f, sh.m, sh.k, sh.aT)
				var ys []View
				var yss []Scaled
				for range copies {
					ys, yss = append(ys, benchBytes(sh.n, sh.k, sh.bT)), append(yss, benchScaled(f, sh.n, sh.k, sh.bT))
				}
				c := benchView(r, sh.m, sh.n, false, 0, func(x float32) float32 { return x })
				var s Scratch
				flops := 2 * float64(sh.m) * float64(sh.n) * float64(sh.k)
				calls := max(1, int(2e7/flops))
				next := 0
				times := func(f func(i int)) func() {
					return func() {
						for range calls {
							f(next % copies)
							next++
						}
					}
				}
				flops *= float64(calls)
				speed.Report(b, "GFLOP/s", flops, times(func(i int) { active.mx(&s, c, View{}, xs, yss[i], mode{}) }),
					speed.Limit{Share: "of-peak", Rate: func() float64 { return rate(active.peakBF16, 200*time.Microsecond) }},
					speed.Work("of-BF16", flops, times(func(i int) { active.bf16(&s, c, x, ys[i].transposed(), mode{}) })))
			})
		}
	}
}

// benchBytes returns a BF16 matrix of small numbers that is quick to make.
func benchBytes(rows, k int, transposed bool) View {
	if transposed {
		return benchBytes(k, rows, false).transposed()
	}
	memory := benchMemory(2 * rows * k)
	for i := range rows * k {
		binary.NativeEndian.PutUint16(memory[2*i:], uint16(0x3f00+i*7919%256))
	}
	return strided(unsafe.Pointer(&memory[0]), rows, k, k, 1)
}

// benchMemory returns memory on huge pages, as weights in training have.
func benchMemory(n int) []byte {
	memory := make([]byte, n)
	pages.Advise(memory)
	return memory
}

func benchScaled(f *format.Element, rows, k int, transposed bool) Scaled {
	if transposed {
		m := benchScaled(f, k, rows, false)
		return Scaled{m.Codes.transposed(), benchScales((k+format.MXBlock-1)/format.MXBlock, rows).transposed(), f}
	}
	codes := benchMemory(rows * k)
	fillBytes(codes, 8, 118) // normal numbers, as are nearly all quantized ones
	return Scaled{strided(unsafe.Pointer(&codes[0]), rows, k, k, 1), benchScales(rows, (k+format.MXBlock-1)/format.MXBlock), f}
}

func benchScales(rows, cols int) View {
	scales := make([]uint8, rows*cols)
	fillBytes(scales, 120, 8)
	return strided(unsafe.Pointer(&scales[0]), rows, cols, cols, 1)
}

func fillBytes(b []uint8, first, n int) {
	for i := range b {
		b[i] = uint8(first + i*7919%n)
	}
}
