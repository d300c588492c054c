//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// Benchmarks of the parts of a BF16 product, which show where the whole product loses time.

// BenchmarkTile runs the microkernel over 132 rows and consecutive column panels. Losses between
// tiles show with few steps, and losses in L2 and L3 with many columns.
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
				flops := 4 * float64(panels*f.rows*f.columns*columns*steps)
				speed.Report(b, "GFLOP/s", flops, func() {
					for j := range columns {
						f.tiles[f.rows](&tile{
							a: unsafe.Pointer(&x[0]), b: unsafe.Pointer(&y[4*steps*f.columns*j]), out: unsafe.Pointer(&out[2*f.columns*j]),
							aStride: panel, outStride: 2 * f.columns * columns, steps: steps, count: panels, columns: 1<<f.columns - 1,
						})
					}
				}, speed.Limit{Share: "of-peak", Rate: func() float64 { return rate(peakBF16AVX512, 100*time.Microsecond) }})
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
			speed.Report(b, "GB/s", 2*float64(f.columns*k), func() {
				part := strided(unsafe.Pointer(&src[next*k]), f.columns, k, k, 1)
				f.packing.columnPanels(&s, &s.b, operand{View: part}, f.columns)
				next = (next + f.columns) % rows
			}, speed.Copy(2*rows*k, 2*rows*k))
		})
	}
}
