package moe

import (
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

func TestStageRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		mtp   int
		stage Stage
	}{
		"a part of [0, 2)":      {0, Stage{First: 1, End: 3}},
		"a part of [0, 3)":      {1, Stage{First: 1, End: 4}},
		"begin with layer 0":    {0, Stage{First: 1, End: 2, Embed: true}},
		"end with the last one": {0, Stage{First: 0, End: 1, Predict: true}},
		"give it a layer":       {0, Stage{First: 1, End: 1}},
		"give 0":                {0, Stage{First: 1, End: 2, Ahead: 1}},
		"give 1":                {1, Stage{First: 0, End: 3}},
		"ends before layer 2":   {1, Stage{First: 1, End: 2, Predict: true}},
	} {
		cfg := with(tiny(), func(cfg *Config) { cfg.MTPLayers = c.mtp })
		on := OneGroup(collective.NewWorld(1).Comm(0))
		if _, err := NewStage(on, cfg, Unquantized(tensor.FP32), 8, nil, c.stage); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c.stage, err, want)
		}
	}
}

// Stages have all layers in order, and no other cut makes the largest stage smaller.
func TestStagesAreEven(t *testing.T) {
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
