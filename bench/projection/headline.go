package projection

// The headline: DeepSeek-V3 671B on 256 B200. One residual is fitted to the published 651 tokens/s.
// 859 and 918 are reproduced, never fitted: they were known while the model was written.

import (
	"strings"
)

// The published figures, in tokens/s per GPU.
const (
	PublishedBF16   = 651.0
	PublishedDeepEP = 859.0
	PublishedMXFP8  = 918.0
)

// Scenario is an interpretation of the two later runs.
type Scenario struct {
	Name, About string
	Routing     string
	Duplicate   int
	Fused       bool // the de-duplicating exchange also saves passes over the rows on a GPU
	// probability that the runs were so, for [ReadingIntervals]; 0: no stack is like that
	Weight float64
}

// Scenarios lists the scenarios.
func Scenarios() []Scenario {
	return []Scenario{
		{"as_run", "forced round-robin routing, and both GPUs of a tensor-parallel pair dispatch all tokens, as the pinned code reads", RoundRobin, 2, true, 0.72},
		{"clean", "forced round-robin routing, tokens shared between the pair: a fixed stack", RoundRobin, 1, true, 0.18},
		{"learned_twice", "random routing, as a learned router's, tokens dispatched twice", Uniform, 2, true, 0.08},
		{"learned", "random routing, tokens shared between the pair", Uniform, 1, true, 0.02},
		{"simple", "random routing, no duplication, no change on the GPU itself: published exchange times alone", Uniform, 1, false, 0},
	}
}

// Target returns the first run of the headline, as published: 671B on 256 B200 in BF16 with the
// standard all-to-all.
func Target() Run { return publishedRun("nebius-bf16") }

// Carried returns the residual that a run inherits from the calibration: the framework time of
// TorchTitan's 671B on B200, and zero for any other stack, model or GPU.
func Carried(r Run, set Settings) (float64, error) {
	if r.Model != "671B" || !strings.EqualFold(r.GPU, "B200") || r.Hardware != nil || r.Stack != "titan_standard" && r.Stack != "titan_deepep" {
		return 0, nil
	}
	return Calibrate(Target(), PublishedBF16, set)
}

// runs returns the runs of a scenario: BF16, with DeepEP, and with MXFP8 experts.
func (s Scenario) runs() [3]Run {
	base := Target()
	if s.Routing == Uniform {
		base.Routing = Uniform
	}
	deep := base
	deep.Stack, deep.Duplicate = "titan_deepep", s.Duplicate
	if !s.Fused { // the standard stack without copies on the wire
		dedup := true
		deep.Stack, deep.Dedup = base.Stack, &dedup
	}
	quantized := deep
	quantized.Precision = "mxfp8-experts"
	return [3]Run{base, deep, quantized}
}

// Calibrate returns the residual, in ms per token, with which a run reaches a published throughput.
func Calibrate(r Run, tokens float64, set Settings) (float64, error) {
	r.Residual = 0
	e, err := newChecked(r, set)
	if err != nil {
		return 0, err
	}
	without := e.total()
	return (1e3/tokens - without.sum()) / e.pipelineFactor(e.parts()), nil
}

// Headline is the projection of a scenario.
type Headline struct {
	Scenario Scenario
	Residual float64    // ms per token
	Budgets  [3]Budget  // BF16 (calibrated), DeepEP, DeepEP with MXFP8
	Error    [3]float64 // signed, relative to the published figure
}

// Project predicts the scenario with these settings.
func (s Scenario) Project(set Settings) (Headline, error) {
	h := Headline{Scenario: s}
	runs := s.runs()
	var err error
	if h.Residual, err = Calibrate(runs[0], PublishedBF16, set); err != nil {
		return h, err
	}
	for i, r := range runs {
		r.Residual = h.Residual
		e, err := newEstimator(r, set)
		if err != nil {
			return h, err
		}
		h.Budgets[i] = e.budget(r.memory(e.model))
		h.Error[i] = h.Budgets[i].Tokens/Targets()[i] - 1
	}
	return h, nil
}

// Targets returns the published figures of the headline, in its order.
func Targets() [3]float64 { return [3]float64{PublishedBF16, PublishedDeepEP, PublishedMXFP8} }

// Range returns the 80 % interval around a throughput of the scenario: predicted steps from one
// published figure of a framework to the next have missed by [Effects].Steps.
func (h Headline) Range(i int) Range { return rangeOf(h.Budgets[i].Tokens, 0, data().effects.Steps) }
