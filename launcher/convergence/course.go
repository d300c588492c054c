package convergence

// The difference between an arm and the baseline over the course of a run.

import (
	"math"

	"spmoe/launcher/record"
)

// windows is the number of windows that a run is divided into.
const windows = 8

// course returns the paired differences in mean training loss over each window of the steps, as a
// mean over seeds. Windows in which a loss is not finite are left out.
func course(runs, baseline []Run) (all []Window) {
	if len(runs) == 0 {
		return nil
	}
	steps := len(runs[0].Log.Steps)
	for i := range windows {
		lo, hi := steps*i/windows, steps*(i+1)/windows
		var pairs []float64
		for j, run := range runs {
			if pair := meanLoss(run.Log.Steps, lo, hi)/meanLoss(baseline[j].Log.Steps, lo, hi) - 1; finite(pair) {
				pairs = append(pairs, pair)
			}
		}
		if len(pairs) == len(runs) {
			s := sampleOf(pairs)
			all = append(all, Window{lo + 1, hi, s.Mean, s.Interval(0.025)})
		}
	}
	return all
}

// meanLoss returns the mean training loss of steps [lo, hi). It is NaN if a step is missing or
// there are none.
func meanLoss(steps []record.Step, lo, hi int) float64 {
	if hi > len(steps) {
		return math.NaN()
	}
	var sum float64
	for _, s := range steps[lo:hi] {
		sum += float64(s.Loss)
	}
	return sum / float64(hi-lo)
}
