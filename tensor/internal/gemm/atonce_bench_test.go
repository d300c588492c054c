//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"spmoe/tensor/cpu"
)

// BenchmarkAtOnce runs the same work on one core and on all cores at once, each with operands of
// its own: multiply-adds in registers, the tiles' microkernel with operands in L1, and products. It
// reports GFLOP/s of the slowest, the median and the fastest core. The median's share is that of
// multiply-adds in registers on as many cores.
func BenchmarkAtOnce(b *testing.B) {
	for _, cores := range []int{1, runtime.NumCPU()} {
		work := workAtOnce()
		peak := ratesAtOnce(cores, work[0].prepare)[cores/2]
		for _, w := range work {
			b.Run(fmt.Sprintf("%s/%d", w.name, cores), func(b *testing.B) {
				for b.Loop() {
					rates := ratesAtOnce(cores, w.prepare)
					b.ReportMetric(rates[0]/1e9, "min-GFLOP/s")
					b.ReportMetric(rates[cores/2]/1e9, "median-GFLOP/s")
					b.ReportMetric(rates[cores-1]/1e9, "max-GFLOP/s")
					b.ReportMetric(rates[cores/2]/peak, "of-registers")
				}
			})
		}
	}
}

// coreWork returns a function that does some work and returns its FLOPs.
type coreWork struct {
	name    string
	prepare func() func() float64
}

// workAtOnce lists the limit first.
func workAtOnce() []coreWork {
	ks := table[cpu.Best()]
	work := []coreWork{{"registers", func() func() float64 { return func() float64 { return ks.peakBF16(2000) } }}}
	if ks.tiles {
		work = append(work, coreWork{"tilesInL1", tilesInL1})
	}
	for _, sh := range [][3]int{{512, 512, 256}, {1024, 1024, 1024}} {
		work = append(work, coreWork{fmt.Sprintf("%dx%dx%d", sh[0], sh[1], sh[2]), func() func() float64 {
			r, s := rand.New(rand.NewPCG(1, 1)), new(Scratch)
			x := benchView(r, sh[0], sh[2], false, 0, roundBF16)
			y := benchView(r, sh[2], sh[1], true, 0, roundBF16)
			c := benchView(r, sh[0], sh[1], false, 0, roundBF16)
			return func() float64 {
				ks.bf16Rounded(s, c, x, y, mode{})
				return 2 * float64(sh[0]) * float64(sh[1]) * float64(sh[2])
			}
		}})
	}
	return work
}

// tilesInL1 multiplies one tile of rows, again and again, with a column panel of 16 KB.
func tilesInL1() func() float64 {
	const rows, k, tileBytes = 512, 256, tileRows * line
	room := make([]byte, 2*tileRows*2*k+2*tileBytes+line)
	b := unsafe.Add(unsafe.Pointer(&room[0]), -int(uintptr(unsafe.Pointer(&room[0])))&(line-1))
	a := unsafe.Add(b, 2*tileRows*2*k)
	return func() float64 {
		t := tile{a: a, b: b, sum: unsafe.Add(a, tileBytes), steps: k / 2, count: rows, tiled: tiled{rows: rows, rowStep: line}}
		t.configureBF16()
		bf16AMXTiles(&t)
		return 2 * rows * k * 32
	}
}

// ratesAtOnce returns the sorted FLOP/s of goroutines that work for 100 ms, each on a thread of its
// own.
func ratesAtOnce(cores int, prepare func() func() float64) []float64 {
	rates := make([]float64, cores)
	var ready, done sync.WaitGroup
	ready.Add(cores)
	for i := range rates {
		done.Go(func() {
			runtime.LockOSThread()
			work := prepare()
			work()
			ready.Done()
			ready.Wait()
			rates[i] = rate(func(int) float64 { return work() }, 100*time.Millisecond)
		})
	}
	done.Wait()
	slices.Sort(rates)
	return rates
}
