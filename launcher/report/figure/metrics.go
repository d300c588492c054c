package figure

// The series in a run's record.

import "spmoe/launcher/record"

// Losses returns the training loss of each step.
func Losses(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		s.Add(step.Step, float64(step.Loss))
	}
	return s
}

// HeldOut returns the validation losses.
func HeldOut(log *record.Log) (s Series) {
	for _, eval := range log.Evals {
		s.Add(eval.Step, float64(eval.Loss))
	}
	return s
}

// GradientNorms returns the gradient norm of each step before clipping.
func GradientNorms(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		s.Add(step.Step, float64(step.GradNorm))
	}
	return s
}

// Imbalances returns the load imbalance of each step. It is empty for a model without experts,
// whose record says 0.
func Imbalances(log *record.Log) (s Series) {
	for _, step := range log.Steps {
		if step.Imbalance > 0 {
			s.Add(step.Step, step.Imbalance)
		}
	}
	return s
}
