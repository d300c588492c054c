package convergence

// How much of a difference in validation loss is due to the choice of the text.

import (
	"math"

	"spmoe/launcher/record"
)

// textError returns the standard error of the difference in validation loss, as a fraction of the
// baseline's, over parts of the text: the parts are a sample of text as the seeds are one of runs.
// It is 0 without two parts that all runs have measured.
func textError(runs, baseline []Run) float64 {
	arm, base := partMeans(runs), partMeans(baseline)
	if len(arm) < 2 || len(arm) != len(base) {
		return 0
	}
	differences := make([]float64, len(arm))
	for i := range arm {
		differences[i] = arm[i] - base[i]
	}
	_, sd := meanSD(differences)
	e := sd / math.Sqrt(float64(len(arm))) / mean(base)
	if !finite(e) {
		return 0
	}
	return e
}

// partMeans returns the loss of each part of the text, as a mean over runs, or nil if the runs have
// different numbers of parts.
func partMeans(runs []Run) (means []float64) {
	for _, run := range runs {
		var passes []record.Number
		if run.Log != nil && run.Log.Done != nil {
			passes = run.Log.Done.Passes
		}
		if means == nil {
			means = make([]float64, len(passes))
		}
		if len(passes) != len(means) {
			return nil
		}
		for i, loss := range passes {
			means[i] += float64(loss) / float64(len(runs))
		}
	}
	return means
}
