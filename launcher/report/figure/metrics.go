package figure

// The series in a run's record.

import "spmoe/launcher/record"

// Steps returns a quantity of the steps that have it, by its key in JSON lines. One whose axis
// begins above 0 is never 0: the record of a model without it says so.
func Steps(log *record.Log, key string) (s Series) {
	q := record.Named(key)
	for _, step := range log.Steps {
		if x, ok := q.In(&step); ok && (x != 0 || q.Floor == 0) {
			s.Add(step.Step, x)
		}
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
