package moe

import (
	"math"
	"testing"
)

// The published numbers: DeepSeek's papers and TorchTitan's tables, to the digits given there.
func TestPublishedCounts(t *testing.T) {
	for _, c := range []struct {
		flavor                   string
		total, active, tolerance float64 // in 1e9 parameters
		flops4K, flops8K         float64 // in 1e9 a token; 0: none published
	}{
		{"16B", 15.706, 2.66, 0.005, 18.1, 21.5},
		{"236B", 235.74, 21.4, 0.05, 185.5, 245.9},
		{"671B", 671.026, 37.55, 0.005, 281.2, 342.6},
	} {
		t.Run(c.flavor, func(t *testing.T) {
			cfg, err := FlavorByName(c.flavor)
			if err != nil {
				t.Fatal(err)
			}
			n := cfg.Count()
			if got := float64(n.Total) / 1e9; math.Abs(got-c.total) > c.tolerance {
				t.Errorf("%.4f B parameters, published %g", got, c.total)
			}
			if got := float64(n.Active) / 1e9; math.Abs(got-c.active) > c.tolerance {
				t.Errorf("%.4f B active parameters, published %g", got, c.active)
			}
			for seq, want := range map[int]float64{4096: c.flops4K, 8192: c.flops8K} {
				if got := cfg.FLOPsPerToken(seq) / 1e9; math.Abs(got-want) > 0.01*want {
					t.Errorf("%.2f GFLOP a token at %d, published %g", got, seq, want)
				}
			}
		})
	}
}

func total(counts []int64) int64 {
	var n int64
	for _, c := range counts {
		n += c
	}
	return n
}

func mustFlavor(t *testing.T, name string) Flavor {
	t.Helper()
	f, err := FindFlavor(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
