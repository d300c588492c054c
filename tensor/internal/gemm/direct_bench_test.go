package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkFewRows multiplies few rows with weights that stream from memory, as experts lie there: one behind the other, along k in
// forward products and across in gradients of data. All threads (go test -cpu) do so at once. BF16 and E4M3 take turns; it reports
// medians of all threads together: GFLOP/s, the share of the peak measured in between, GB/s of the weights, and E4M3's speed by BF16's.
func BenchmarkFewRows(b *testing.B) {
	for _, across := range []bool{false, true} {
		for _, sh := range []struct{ n, k int }{{512, 512}, {512, 256}, {512, 7168}} {
			for _, m := range []int{1, 4, 8, 16, 32} {
				b.Run(fmt.Sprintf("across=%v/%dx%dx%d", across, m, sh.n, sh.k), func(b *testing.B) {
					threads := runtime.GOMAXPROCS(0)
					experts := newStreamed(sh.n, sh.k, across, threads)
					calls := experts.count / threads
					x, xs := benchBytes(m, sh.k, false), benchScaled(E4M3, m, sh.k, false)
					scratch, results := make([]Scratch, threads), make([]View, threads)
					for i := range results {
						results[i] = benchView(rand.New(rand.NewPCG(1, 1)), m, sh.n, false, 0, func(x float32) float32 { return x })
					}
					together := func(f func(thread int)) {
						var all sync.WaitGroup
						for thread := range threads {
							all.Go(func() { f(thread) })
						}
						all.Wait()
					}
					seconds := func(multiply func(thread, expert int)) float64 {
						start := time.Now()
						together(func(thread int) {
							for i := range calls {
								multiply(thread, thread*calls+i)
							}
						})
						return time.Since(start).Seconds()
					}
					weights := float64(threads * calls * sh.n * sh.k)
					var narrow, coded, ratios, narrowShares, codedShares []float64
					tops := make([]float64, threads)
					for b.Loop() {
						together(func(thread int) { tops[thread] = rate(active.peakBF16, 2*time.Millisecond) })
						peak := 0.0
						for _, top := range tops {
							peak += top
						}
						t := seconds(func(thread, expert int) {
							active.bf16(&scratch[thread], results[thread], x, experts.bf16(expert).transposed(), into{})
						})
						u := seconds(func(thread, expert int) {
							active.mx(&scratch[thread], results[thread], View{}, xs, experts.scaled(expert), into{})
						})
						work := 2 * float64(m) * weights / peak
						narrow, coded, ratios = append(narrow, 1/t), append(coded, 1/u), append(ratios, t/u)
						narrowShares, codedShares = append(narrowShares, work/t), append(codedShares, work/u)
					}
					median := func(values []float64) float64 {
						slices.Sort(values)
						return values[len(values)/2]
					}
					for unit, value := range map[string]float64{
						"BF16-GFLOP/s": median(narrow) * weights * 2 * float64(m) / 1e9, "BF16-of-peak": median(narrowShares),
						"E4M3-GFLOP/s": median(coded) * weights * 2 * float64(m) / 1e9, "E4M3-of-peak": median(codedShares),
						"BF16-GB/s": median(narrow) * weights * 2 / 1e9, "E4M3-GB/s": median(coded) * weights * 33 / 32 / 1e9,
						"E4M3-of-BF16": median(ratios),
					} {
						b.ReportMetric(value, unit)
					}
				})
			}
		}
	}
}

// streamed is weights [n, k] of many experts, one behind the other, stored [k, n] if across.
type streamed struct {
	elements, codes, scales View
	n, k, count             int
	across                  bool
}

func newStreamed(n, k int, across bool, threads int) *streamed {
	s := &streamed{n: n, k: k, count: rotation / (n * k) / threads * threads, across: across}
	rows, cols := s.count*n, k
	if across {
		rows, cols = s.count*k, n
	}
	s.elements, s.codes = benchBytes(rows, cols, false), benchScaled(E4M3, rows, cols, false).Codes
	s.scales = benchScales(s.count*n, (k+blockLength-1)/blockLength)
	return s
}

func (s *streamed) bf16(i int) View { return s.part(s.elements, 2, i) }

func (s *streamed) scaled(i int) Scaled {
	scales := s.scales.slice(1, i*s.n, 0, s.n, s.scales.Cols)
	if s.across {
		scales = strided(scales.Ptr, scales.Cols, s.n, s.n, 1).transposed()
	}
	return Scaled{s.part(s.codes, 1, i), scales, E4M3}
}

// part is [n, k] of expert i.
func (s *streamed) part(all View, elem, i int) View {
	if s.across {
		return all.slice(elem, i*s.k, 0, s.k, s.n).transposed()
	}
	return all.slice(elem, i*s.n, 0, s.n, s.k)
}
