package report

// What figures and tables need, taken out of the runs' logs. A run without a log adds nothing.

import (
	"math"
	"slices"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
)

// kinds are the operands of a linear layer that are quantised.
var kinds = []string{record.Input, record.Weight, record.Gradient}

func losses(log *record.Log) (s series) {
	for _, step := range log.Steps {
		s.add(step.Step, float64(step.Loss))
	}
	return s
}

func heldOut(log *record.Log) (s series) {
	for _, eval := range log.Evals {
		s.add(eval.Step, float64(eval.Loss))
	}
	return s
}

func gradientNorms(log *record.Log) (s series) {
	for _, step := range log.Steps {
		s.add(step.Step, float64(step.GradNorm))
	}
	return s
}

// imbalances is empty for a model without experts, which says 0.
func imbalances(log *record.Log) (s series) {
	for _, step := range log.Steps {
		if step.Imbalance > 0 {
			s.add(step.Step, step.Imbalance)
		}
	}
	return s
}

// seeds returns a series of each of an arm's runs that has a log.
func seeds(arm convergence.Arm, get func(*record.Log) series) (list []series) {
	for _, run := range arm.Runs {
		if run.Log != nil {
			list = append(list, get(run.Log))
		}
	}
	return list
}

// paired returns, for each seed that both arms were trained with, how far the arm lies above the baseline, in percent.
func paired(base, arm convergence.Arm, get func(*record.Log) series) (list []series) {
	for _, run := range arm.Runs {
		i := slices.IndexFunc(base.Runs, func(b convergence.Run) bool { return b.Seed == run.Seed })
		if i >= 0 && run.Log != nil && base.Runs[i].Log != nil {
			list = append(list, get(run.Log).relative(get(base.Runs[i].Log)).scaled(100))
		}
	}
	return list
}

// agreement returns the mean over layers of the choices that an arm shares with the baseline, in percent, with the lowest and the
// highest layer.
func agreement(arm convergence.Arm) curve {
	layers := map[int]*series{}
	var order []int
	for _, a := range arm.Agreement {
		if layers[a.Layer] == nil {
			layers[a.Layer] = new(series)
			order = append(order, a.Layer)
		}
		layers[a.Layer].add(a.Step, 100*a.Share)
	}
	var list []series
	for _, layer := range order {
		list = append(list, *layers[layer])
	}
	return over(list)
}

// quantised measures one kind of operand in each recorded step of a run.
func quantised(kind string, measure func([]record.Quantised) float64) func(*record.Log) series {
	return func(log *record.Log) (s series) {
		var steps []int
		at := map[int][]record.Quantised{}
		for _, q := range log.Quantised {
			if q.Tensor != kind {
				continue
			}
			if at[q.Step] == nil {
				steps = append(steps, q.Step)
			}
			at[q.Step] = append(at[q.Step], q)
		}
		slices.Sort(steps)
		for _, step := range steps {
			s.add(step, measure(at[step]))
		}
		return s
	}
}

// flushed and saturated are parts of all values, in percent.
func flushed(list []record.Quantised) float64 {
	return share(list, func(q record.Quantised) int64 { return q.Flushed })
}

func saturated(list []record.Quantised) float64 {
	return share(list, func(q record.Quantised) int64 { return q.Saturated })
}

func share(list []record.Quantised, count func(record.Quantised) int64) float64 {
	var part, all int64
	for _, q := range list {
		part, all = part+count(q), all+q.Elements
	}
	if all == 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(all)
}
