//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// Benchmarks of the parts of a BF16 product, which show where the whole product loses time.

// BenchmarkTile runs the microkernel over 132 rows and consecutive column panels. share is relative
// to the peak, measured in alternation. Losses between tiles show with few steps, and losses in L2
// and L3 with many columns.
func BenchmarkTile(b *testing.B) {
	const panels = 11
	f := &bf16AVX512
	for _, steps := range []int{128, 512} {
		for _, columns := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("steps%d/columns%d", steps, columns*f.columns), func(b *testing.B) {
				cputest.Need(b, cpu.AVX512BF16)
				panel := 4*steps*f.rows + line
				x, y := make([]byte, panels*panel), make([]byte, 4*steps*f.columns*columns)
				out := make([]byte, 2*panels*f.rows*f.columns*columns)
				var flops, loop, took float64
				for b.Loop() {
					begin := time.Now()
					flops += peakBF16AVX512(2000)
					loop += time.Since(begin).Seconds()
					begin = time.Now()
					for j := range columns {
						f.tiles[f.rows](&tile{
							a: unsafe.Pointer(&x[0]), b: unsafe.Pointer(&y[4*steps*f.columns*j]), out: unsafe.Pointer(&out[2*f.columns*j]),
							aStride: panel, outStride: 2 * f.columns * columns, steps: steps, count: panels, columns: 1<<f.columns - 1,
						})
					}
					took += time.Since(begin).Seconds()
				}
				done := 4 * float64(panels*f.rows*f.columns*columns*steps) * float64(b.N)
				b.ReportMetric(done/took/(flops/loop), "share")
			})
		}
	}
}

// BenchmarkPack packs rows along k for the columns of a product, in L2 and from memory. GB/s counts
// the bytes read.
func BenchmarkPack(b *testing.B) {
	const k = 7168
	f := &bf16AVX512
	for _, rows := range []int{32, 8192} {
		b.Run(fmt.Sprintf("rows%d", rows), func(b *testing.B) {
			cputest.Need(b, cpu.AVX512BF16)
			var s Scratch
			src := make([]uint16, rows*k)
			for i := range src {
				src[i] = uint16(i)
			}
			next := 0
			for b.Loop() {
				part := strided(unsafe.Pointer(&src[next*k]), f.columns, k, k, 1)
				f.packing.columnPanels(&s, &s.b, operand{View: part}, f.columns)
				next = (next + f.columns) % rows
			}
			b.ReportMetric(float64(2*f.columns*k*b.N)/1e9/b.Elapsed().Seconds(), "GB/s")
		})
	}
}
