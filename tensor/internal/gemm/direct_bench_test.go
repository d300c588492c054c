package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkFewRows tells what holds products of few rows up: it takes weights that the third level of cache holds and weights from
// memory in turns, and reports medians: the share of the peak with either, and the GB/s of the weights from memory.
func BenchmarkFewRows(b *testing.B) {
	const n, k = 512, 7168
	for _, codes := range []bool{false, true} {
		for _, m := range []int{1, 2, 4, 8, 12, 32} {
			b.Run(fmt.Sprintf("codes=%v/%dx%dx%d", codes, m, n, k), func(b *testing.B) {
				copies, bytes := rotation/(2*n*k), float64(2*n*k)
				x, xs := benchBytes(m, k, false), benchScaled(E4M3, m, k, false)
				var weights []View
				var quantised []Scaled
				for range copies {
					if codes {
						quantised = append(quantised, benchScaled(E4M3, n, k, false), benchScaled(E4M3, n, k, false))
					} else {
						weights = append(weights, benchBytes(n, k, false))
					}
				}
				if codes {
					copies, bytes = 2*copies, float64(n*k)*33/32
				}
				c := results(rand.New(rand.NewPCG(1, 1)), m, n).View
				var s Scratch
				multiply := func(i int) {
					if codes {
						active.mx(&s, c, View{}, xs, quantised[i%copies], into{})
					} else {
						active.bf16(&s, c, x, weights[i%copies].transposed(), into{})
					}
				}
				const calls = 4
				seconds := func(f func(i int)) float64 {
					start := time.Now()
					for i := range calls {
						f(i)
					}
					return time.Since(start).Seconds() / calls
				}
				flops := 2 * float64(m*n*k)
				var held, streamed, rates []float64
				turn := 0
				for b.Loop() {
					top := rate(active.peakBF16, 200*time.Microsecond)
					t := seconds(func(i int) { multiply(turn*calls + i) })
					rates, streamed = append(rates, bytes/t/1e9), append(streamed, flops/t/top)
					multiply(0)
					held = append(held, flops/seconds(func(int) { multiply(0) })/top)
					turn++
				}
				for unit, values := range map[string][]float64{"GB/s": rates, "of-peak": streamed, "of-peak-cached": held} {
					slices.Sort(values)
					b.ReportMetric(values[len(values)/2], unit)
				}
			})
		}
	}
}
