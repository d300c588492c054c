package bench

import (
	"testing"
	"time"
)

// TestContest: every product has a peak and a rate of the engine's own.
func TestContest(t *testing.T) {
	c := NewPeerBenchmark()
	defer c.Close()
	for _, p := range []Product{
		{"bf16", 1, 16, 32, 64, false}, {"bf16", 1, 1, 2048, 1024, true}, {"bf16", 4, 8, 32, 64, false},
		{"mxint8", 1, 16, 32, 64, false}, {"fp32", 1, 16, 32, 64, false},
	} {
		peak, ours := c.Rates(p)
		if got := peak(time.Millisecond); got <= 0 {
			t.Errorf("%+v: peak %g", p, got)
		}
		if got := ours(time.Millisecond); got <= 0 {
			t.Errorf("%+v: rate %g", p, got)
		}
	}
}

// TestCopies: streamed weights are more than 128 MB, in bytes of their format.
func TestCopies(t *testing.T) {
	p := Product{"bf16", 1, 1, 2048, 7168, true}
	if bytes := p.Copies() * 2 * p.N * p.K; bytes < 128e6 || bytes > 256e6 {
		t.Errorf("%d copies are %d bytes", p.Copies(), bytes)
	}
	if p.Streamed = false; p.Copies() != 1 {
		t.Errorf("%d copies of weights that are not streamed", p.Copies())
	}
}
