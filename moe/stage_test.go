package moe

import (
	"strings"
	"testing"
)

// Stages have all layers in order, and no other cut makes the largest stage smaller.
func TestStagesAreEven(t *testing.T) {
	shared := with(mustFlavor(t, "debug").Config, choosing)
	if _, err := shared.Stages(5, 64); err == nil || !strings.Contains(err.Error(), "1 share the keys") {
		t.Error(err)
	}
	for n := range 4 {
		stages, err := shared.Stages(n+1, 64)
		for _, s := range stages {
			if s.First == 2 && s.End > 2 {
				t.Errorf("%d stages: one begins with layer 2, which shares keys: %+v (%v)", n, stages, err)
			}
		}
	}
	for _, cfg := range []Config{tiny(), mustFlavor(t, "debug").Config, with(mustFlavor(t, "debug").Config, func(c *Config) { c.MTPLayers, c.Vocab = 1, 100000 })} {
		costs := cfg.itemCosts(64)
		for n := 1; n <= len(costs); n++ {
			stages, err := cfg.Stages(n, 64)
			if err != nil {
				t.Fatal(err)
			}
			next, most := 0, 0.0
			for i, s := range stages {
				if s.First != next || s.Embed != (i == 0) || s.Predict != (i == n-1) || s.First == s.End && !s.Embed && !s.Predict || s.Ahead != max(s.End-max(s.First, cfg.Layers), 0) {
					t.Errorf("%d stages: stage %d is %+v after layer %d", n, i, s, next)
				}
				next = s.End
				most = max(most, stageCost(s, costs))
			}
			if least := smallestRun(costs, n); next != cfg.AllLayers() || most > least*(1+1e-12) {
				t.Errorf("%d stages of %v: %+v, the largest has %v, the least possible is %v", n, costs, stages, most, least)
			}
		}
		if _, err := cfg.Stages(len(costs)+1, 64); err == nil || !strings.Contains(err.Error(), "give 1 to") {
			t.Error(err)
		}
	}
}

func stageCost(s Stage, costs []float64) (sum float64) {
	for _, c := range costs[1+s.First : 1+s.End-s.Ahead] {
		sum += c
	}
	if s.Embed {
		sum += costs[0]
	}
	if s.Predict {
		sum += costs[len(costs)-1]
	}
	return sum
}

// smallestRun tries all divisions into n runs, and returns the least that the largest can have.
func smallestRun(costs []float64, n int) float64 {
	sum := 0.0
	if n == 1 {
		for _, c := range costs {
			sum += c
		}
		return sum
	}
	best := -1.0
	for i, c := range costs[:len(costs)-n+1] {
		sum += c
		if most := max(sum, smallestRun(costs[i+1:], n-1)); best < 0 || most < best {
			best = most
		}
	}
	return best
}
