package report

// Series for figures and tables, extracted from the runs' logs. A run without a log adds nothing.

import (
	"math"
	"slices"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// kinds are the operands of a linear layer that a recipe quantizes.
var kinds = []string{record.Input, record.Weight, record.Gradient}

// seeds returns one series per run of an arm.
func seeds(arm convergence.Arm, get func(*record.Log) figure.Series) (list []figure.Series) {
	for _, run := range arm.Runs {
		if run.Log != nil {
			list = append(list, get(run.Log))
		}
	}
	return list
}

// paired returns the relative difference of the arm to the baseline, in percent, for each seed that
// both were trained with.
func paired(base, arm convergence.Arm, get func(*record.Log) figure.Series) (list []figure.Series) {
	for _, run := range arm.Runs {
		i := slices.IndexFunc(base.Runs, func(b convergence.Run) bool { return b.Seed == run.Seed })
		if i >= 0 && run.Log != nil && base.Runs[i].Log != nil {
			list = append(list, get(run.Log).Relative(get(base.Runs[i].Log)).Scaled(100))
		}
	}
	return list
}

// agreement returns the share of choices that agree with the baseline, in percent: the mean over
// layers, with the lowest and the highest layer.
func agreement(arm convergence.Arm) figure.Curve {
	layers := map[int]*figure.Series{}
	var order []int
	for _, a := range arm.Agreement {
		if layers[a.Layer] == nil {
			layers[a.Layer] = new(figure.Series)
			order = append(order, a.Layer)
		}
		layers[a.Layer].Add(a.Step, 100*a.Share)
	}
	var list []figure.Series
	for _, layer := range order {
		list = append(list, *layers[layer])
	}
	return figure.Over(list)
}

// quantized measures one kind of operand in each recorded step of a run.
func quantized(kind string, measure func([]record.Quantized) float64) func(*record.Log) figure.Series {
	return func(log *record.Log) (s figure.Series) {
		var steps []int
		at := map[int][]record.Quantized{}
		for _, q := range log.Quantized {
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
			s.Add(step, measure(at[step]))
		}
		return s
	}
}

// flushed returns the share of values that became zero, in percent.
func flushed(list []record.Quantized) float64 {
	return share(list, func(q record.Quantized) int64 { return q.Flushed })
}

// saturated returns the share of values that saturated, in percent.
func saturated(list []record.Quantized) float64 {
	return share(list, func(q record.Quantized) int64 { return q.Saturated })
}

// share returns a count over all elements, in percent. It is NaN if there are no elements.
func share(list []record.Quantized, count func(record.Quantized) int64) float64 {
	var part, all int64
	for _, q := range list {
		part, all = part+count(q), all+q.Elements
	}
	if all == 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(all)
}
