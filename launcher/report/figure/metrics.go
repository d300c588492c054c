package figure

// Series that a run's record holds.

import "spmoe/launcher/record"

// Losses are those of the steps.
func Losses(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		s.Add(step.Step, float64(step.Loss))
	}
	return s
}

// HeldOut are the losses of evaluations.
func HeldOut(log *record.Log) (s Series) {
	for _, eval := range log.Evals {
		s.Add(eval.Step, float64(eval.Loss))
	}
	return s
}

// GradientNorms are those before clipping.
func GradientNorms(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		s.Add(step.Step, float64(step.GradNorm))
	}
	return s
}

// Imbalances is empty for a model without experts, which says 0.
func Imbalances(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		if step.Imbalance > 0 {
			s.Add(step.Step, step.Imbalance)
		}
	}
	return s
}
