package bench

import "spmoe/tensor"

// Product is a matrix product y = x·Wᵀ into FP32 that other libraries also offer: x: [M, K], W: [N,
// K], for each of Groups.
type Product struct {
	Format          string // of both operands: bf16, fp32 or mxint8
	Groups, M, N, K int
	Streamed        bool // every call uses other weights, which come from memory
}

// Copies returns the number of sets of weights that calls cycle through.
func (p Product) Copies() int {
	if !p.Streamed {
		return 1
	}
	return weightCopies(p.format().bytes(p.Groups * p.N * p.K))
}

func (p Product) format() format {
	for _, f := range []format{inFP32, inBF16, inMXINT8} {
		if f.name == p.Format {
			return f
		}
	}
	panic("bench: no product in format " + p.Format)
}

// Products lists the products of Kernels that other libraries also have, in shapes of all kinds.
func Products() []Product {
	var all []Product
	for _, m := range [][3]int{{1024, 1024, 1024}, {4096, 4096, 4096}, {512, 2048, 7168}, {128, 2048, 7168}, {32, 2048, 7168}, {64, 512, 256}, {512, 512, 256}, {2048, 256, 512}, {256, 1024, 256}} {
		all = append(all, Product{"bf16", 1, m[0], m[1], m[2], false})
	}
	for _, rows := range []int{8, 4, 1} {
		all = append(all, Product{"bf16", 1, rows, 2048, 7168, true})
	}
	for _, rows := range []int{8, 32, 128} {
		all = append(all, Product{"bf16", 32, rows, 2048, 1024, false})
	}
	for _, format := range []string{"mxint8", "fp32"} {
		for _, m := range [][3]int{{1024, 1024, 1024}, {4096, 4096, 4096}, {512, 2048, 7168}, {64, 512, 256}} {
			all = append(all, Product{format, 1, m[0], m[1], m[2], false})
		}
	}
	return all
}

// PeerBenchmark measures the engine's side of a comparison of products, on the caller's core.
type PeerBenchmark struct{ s *suite }

// NewPeerBenchmark returns a PeerBenchmark.
func NewPeerBenchmark() *PeerBenchmark { return &PeerBenchmark{newSuite()} }

// Close releases its memory.
func (c *PeerBenchmark) Close() { c.s.close() }

// Rates returns rates in GFLOP/s, valid until the next call: peak for multiply-adds in registers,
// ours for the product.
func (c *PeerBenchmark) Rates(p Product) (peak, ours Rate) {
	c.s.ex.Reset()
	f := p.format()
	rate := func(k kernel) Rate { return rateOf(gigaFLOPs(p.Groups*p.M, p.N, p.K), k.prepare(c.s)) }
	peak = PeakCore(f.peak())
	switch {
	case p.Groups > 1:
		return peak, rate(grouped(f, tensor.FP32, p.Groups, p.M, p.N, p.K))
	case p.Streamed:
		return peak, rate(streamed(f, p.M, p.N, p.K))
	}
	return peak, rate(gemm(f, p.M, p.N, p.K))
}
