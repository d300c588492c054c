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

// The parameters of stages are those of the model, under the same names.
func TestStagesHaveTheModelsParameters(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers = 1 })
	want := map[string]bool{}
	for _, p := range alone(t, cfg, tensor.FP32, 8).model.Params() {
		want[p.Name] = true
	}
	for _, s := range []Stage{{Embed: true}, {End: 1}, {First: 1, End: 3, Ahead: 1}, {First: 3, End: 3, Predict: true}} {
		m, err := NewStage(OneGroup(collective.NewWorld(1).Comm(0)), cfg, Unquantized(tensor.FP32), 8, nil, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params() {
			if !want[p.Name] {
				t.Errorf("stage %+v: %s is not in the model, or in another stage, too", s, p.Name)
			}
			delete(want, p.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no stage has %v", want)
	}
}

// Passes of a stage that come out of order, or without a gradient, are mistakes of the caller.
func TestStagePassRefuses(t *testing.T) {
	cfg := tiny()
	b := batchOf(1, 1, 8, cfg.Vocab)
	for want, run := range map[string]func(first, last *Model, ex *tensor.Exec){
		"after 0 others": func(first, last *Model, ex *tensor.Exec) {
			if p, err := first.ForwardStage(ex, b, 1, Boundary{}); err == nil {
				_, _ = last.ForwardStage(ex, b, 1, p.Output())
			}
		},
		"needs the gradient": func(first, _ *Model, ex *tensor.Exec) {
			if p, err := first.ForwardStage(ex, b, 0, Boundary{}); err == nil {
				_ = p.Backward(ex)
			}
		},
	} {
		var stages []*Model
		for _, s := range []Stage{{End: 1, Embed: true}, {First: 1, End: 2, Predict: true}} {
			m, err := NewStage(OneGroup(collective.NewWorld(1).Comm(0)), cfg, Unquantized(tensor.FP32), 8, nil, s)
			if err != nil {
				t.Fatal(err)
			}
			spread(m)
			stages = append(stages, m)
		}
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("%q, want %s", text, want)
				}
			}()
			run(stages[0], stages[1], tensor.NewExec())
		}()
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
				if err := s.validate(cfg); err != nil || s.First != next || s.Embed != (i == 0) || s.Predict != (i == n-1) {
					t.Errorf("%d stages: stage %d is %+v after layer %d: %v", n, i, s, next, err)
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
