package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/format"
)

// BenchmarkSpans compares gradients of weights by spans with the same products as one chain.
func BenchmarkSpans(b *testing.B) {
	const m, n = 1024, 512
	for _, sh := range []struct{ k, span int }{{512, 512}, {1024, 512}, {2048, 512}, {2048, 128}, {4096, 256}, {4096, 2048}} {
		r := rand.New(rand.NewPCG(1, 2))
		x, y := operands[uint16](r, m, n, sh.k, true, false)
		fx, fy := operands[float32](r, m, n, sh.k, true, false)
		c := results(r, m, n).View
		var s Scratch
		scaled := func(f *format.Element) func(m mode) {
			p, q := newScaled(f, m, sh.k, true, true, finite(r, f), near(r)), newScaled(f, n, sh.k, true, true, finite(r, f), near(r))
			return func(m mode) { active.mx(&s, c, View{}, p.Scaled, q.Scaled, m) }
		}
		for _, kind := range []struct {
			name    string
			product func(m mode)
		}{
			{"bf16", func(m mode) { active.bf16(&s, c, x.View, y.View, m) }},
			{"fp32", func(m mode) { active.fp32(&s, c, fx.View, fy.View, m) }},
			{"mxfp8", scaled(format.E4M3)},
			{"mxint8", scaled(format.INT8)},
		} {
			b.Run(fmt.Sprintf("%s/k=%d,span=%d", kind.name, sh.k, sh.span), func(b *testing.B) {
				flops := 2 * float64(m*n*sh.k)
				speed.Report(b, "GFLOP/s", flops, func() { kind.product(mode{add: true, span: sh.span}) },
					speed.Limit{Share: "of-peak", Rate: func() float64 { return rate(active.peakBF16, 100*time.Microsecond) }},
					speed.Work("of-chain", flops, func() { kind.product(mode{add: true}) }))
			})
		}
	}
}
