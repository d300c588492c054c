package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spmoe/tensor/format"
)

// BenchmarkFewRows multiplies few rows with weights that stream from memory. Experts lie one after
// the other, along k in forward products and across in gradients of data. All threads (go test
// -cpu) run at once. BF16, E4M3 and INT8 alternate. It reports medians over all threads together:
// GFLOP/s, the share of BF16's peak measured in between, GB/s of the weights, and the speed
// relative to BF16.
func BenchmarkFewRows(b *testing.B) {
	fewRowsOf(b, 1, func(weights, threads int) int { return rotation / weights / threads })
}

// BenchmarkFewRowsCached is BenchmarkFewRows with one expert per thread, repeatedly.
func BenchmarkFewRowsCached(b *testing.B) {
	fewRowsOf(b, 100, func(_, _ int) int { return 1 })
}

// fewRowsOf multiplies with count experts per thread, repeat times.
func fewRowsOf(b *testing.B, repeat int, count func(weights, threads int) int) {
	for _, across := range []bool{false, true} {
		for _, sh := range []struct{ n, k int }{{512, 512}, {512, 256}, {512, 7168}} {
			for _, m := range []int{1, 4, 8, 16, 32} {
				b.Run(fmt.Sprintf("across=%v/%dx%dx%d", across, m, sh.n, sh.k), func(b *testing.B) {
					threads := runtime.GOMAXPROCS(0)
					calls := count(sh.n*sh.k, threads)
					experts := newStreamed(sh.n, sh.k, across, calls*threads)
					x := benchBytes(m, sh.k, false)
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
							for i := range repeat * calls {
								multiply(thread, thread*calls+i%calls)
							}
						})
						return time.Since(start).Seconds()
					}
					weights := float64(threads * repeat * calls * sh.n * sh.k)
					recipes := []*fewRows{
						{name: "BF16", bytes: 2, multiply: func(thread, expert int) {
							active.bf16(&scratch[thread], results[thread], x, experts.bf16(expert).transposed(), mode{})
						}},
						fewCoded(format.E4M3, active.mx, scratch, results, experts, m),
						fewCoded(format.INT8, active.mx, scratch, results, experts, m),
					}
					for _, r := range recipes {
						seconds(r.multiply) // touches memory for the first time
					}
					tops := make([]float64, threads)
					for b.Loop() {
						together(func(thread int) { tops[thread] = rate(active.peakBF16, 2*time.Millisecond) })
						peak := 0.0
						for _, top := range tops {
							peak += top
						}
						for _, r := range recipes {
							t := seconds(r.multiply)
							r.speeds = append(r.speeds, weights/t)
							r.shares = append(r.shares, 2*float64(m)*weights/t/peak)
							r.ratios = append(r.ratios, r.speeds[len(r.speeds)-1]/recipes[0].speeds[len(r.speeds)-1])
						}
					}
					for _, r := range recipes {
						b.ReportMetric(median(r.speeds)*2*float64(m)/1e9, r.name+"-GFLOP/s")
						b.ReportMetric(median(r.speeds)*r.bytes/1e9, r.name+"-GB/s")
						b.ReportMetric(median(r.shares), r.name+"-of-peak")
						b.ReportMetric(median(r.ratios), r.name+"-of-BF16")
					}
				})
			}
		}
	}
}

// fewRows is one recipe of BenchmarkFewRows with its measurements: weights per second, shares of
// the peak, and speeds relative to BF16.
type fewRows struct {
	name                   string
	bytes                  float64 // per weight
	multiply               func(thread, expert int)
	speeds, shares, ratios []float64
}

// fewCoded multiplies m rows of codes with those of experts.
func fewCoded(f *format.Element, multiply func(s *Scratch, sum, out View, a, b Scaled, m mode), scratch []Scratch, results []View, experts *streamed, m int) *fewRows {
	x := benchScaled(f, m, experts.k, false)
	return &fewRows{name: strings.ToUpper(f.String()), bytes: 33. / 32, multiply: func(thread, expert int) {
		multiply(&scratch[thread], results[thread], View{}, x, experts.scaled(f, expert), mode{})
	}}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// streamed holds the weights [n, k] of many experts, one after the other. They are stored as [k, n]
// if across.
type streamed struct {
	elements, codes, scales View
	n, k, count             int
	across                  bool
}

func newStreamed(n, k int, across bool, count int) *streamed {
	s := &streamed{n: n, k: k, count: count, across: across}
	rows, cols := s.count*n, k
	if across {
		rows, cols = s.count*k, n
	}
	s.elements, s.codes = benchBytes(rows, cols, false), benchScaled(format.E4M3, rows, cols, false).Codes
	s.scales = benchScales(s.count*n, (k+format.MXBlock-1)/format.MXBlock)
	return s
}

func (s *streamed) bf16(i int) View { return s.part(s.elements, 2, i) }

func (s *streamed) scaled(f *format.Element, i int) Scaled {
	scales := s.scales.slice(1, i*s.n, 0, s.n, s.scales.Cols)
	if s.across {
		scales = strided(scales.Ptr, scales.Cols, s.n, s.n, 1).transposed()
	}
	return Scaled{s.part(s.codes, 1, i), scales, f}
}

// part returns [n, k] of expert i.
func (s *streamed) part(all View, elem, i int) View {
	if s.across {
		return all.slice(elem, i*s.k, 0, s.k, s.n).transposed()
	}
	return all.slice(elem, i*s.n, 0, s.n, s.k)
}
