package convergence

// How much pairs scatter: measured before, in a pilot, or in a finished comparison.

import (
	"fmt"
	"math"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/trainer"
)

// Scatter returns the scatter of the arm's pairs. It returns false if there are fewer than two.
func (a Arm) Scatter() (s design.Scatter, ok bool) {
	if a.Train == nil || a.HeldOut == nil || a.Train.Seeds < 2 {
		return s, false
	}
	s = design.Scatter{Train: a.Train.SD, HeldOut: a.HeldOut.SD, Pairs: a.Train.Seeds}
	if r := correlation(a.Train.Pairs, a.HeldOut.Pairs); finite(r) {
		s.Correlation = max(-1, min(r, 1))
	}
	return s, true
}

// Scatter returns the scatter of the arm that scatters most. It returns false if there is none.
func (r Result) Scatter() (most design.Scatter, ok bool) {
	for i, arm := range r.Arms {
		if s, has := arm.Scatter(); has && i > 0 && math.Max(s.Train, s.HeldOut) >= math.Max(most.Train, most.HeldOut) {
			most, ok = s, true
		}
	}
	return most, ok
}

// ReadScatter returns the scatter in the result of an earlier comparison.
func ReadScatter(folder string) (s design.Scatter, err error) {
	r, err := ReadResult(folder)
	if err != nil {
		return s, err
	}
	s, ok := r.Scatter()
	if !ok {
		return s, fmt.Errorf("the comparison in %s has no arm with two seeds or more, so it does not say how much pairs scatter", folder)
	}
	return s, nil
}

// measured is the scatter of MXFP8 against BF16 in the comparisons of bench/results/convergence.
var measured = []struct {
	flavor            string
	steps, batch, seq int
	lr                float64
	scatter           design.Scatter
}{
	{"debug", 1500, 16, 128, 1e-3, design.Scatter{Train: 0.00338, HeldOut: 0.00408, Correlation: 0.66, Pairs: 20}},
	{"300K", 1500, 32, 128, 8e-3, design.Scatter{Train: 0.01255, HeldOut: 0.01098, Correlation: 0.89, Pairs: 8}},
	{"debug", 1500, 16, 128, 3e-3, design.Scatter{Train: 0.00925, HeldOut: 0.01082, Correlation: 0.97, Pairs: 10}},
}

// MeasuredScatter returns the scatter of runs of several precisions with a configuration, if it was
// measured.
func MeasuredScatter(cfg trainer.Config) (s design.Scatter, ok bool) {
	for _, m := range measured {
		flavor, err := trainer.Default(m.flavor)
		if err == nil && cfg.Model == flavor.Model && cfg.Steps == m.steps && cfg.Batch == m.batch && cfg.Seq == m.seq && cfg.Optimizer.LR == m.lr {
			return m.scatter, true
		}
	}
	return s, false
}
