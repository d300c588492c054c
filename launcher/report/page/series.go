package page

// Series of measurements over the steps of a run, and their summary over several runs.

import (
	"math"
	"slices"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// Series is a quantity of a run: a value per step, NaN if it is not finite.
type Series struct {
	Steps  []int
	Values []float64
}

// Add appends the value of a step.
func (s *Series) Add(step int, value float64) {
	if !report.Finite(value) {
		value = math.NaN()
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, value)
}

// Steps returns a quantity of the steps that have it, by its key in JSON lines.
func Steps(log *record.Log, key string) Series { return quantity(log, record.Named(key)) }

// quantity returns a quantity of the steps that have it. One whose axis begins above 0 is never 0:
// the record of a model without it says so.
func quantity(log *record.Log, q record.Quantity) (s Series) {
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

// Trailing returns the means of n consecutive values each, from the first n values to the last n.
// They are NaN where the last of the values is.
func (s Series) Trailing(n int) (out Series) {
	n = max(1, min(n, len(s.Values)))
	for i := n - 1; i < len(s.Values); i++ {
		sum, count := 0.0, 0.0
		for _, v := range s.Values[i+1-n : i+1] {
			if report.Finite(v) {
				sum, count = sum+v, count+1
			}
		}
		if !report.Finite(s.Values[i]) {
			sum = math.NaN()
		}
		out.Add(s.Steps[i], sum/count)
	}
	return out
}

// Relative returns (s-base)/base at the steps that both series have.
func (s Series) Relative(base Series) (out Series) {
	at := make(map[int]float64, len(base.Steps))
	for i, step := range base.Steps {
		at[step] = base.Values[i]
	}
	for i, step := range s.Steps {
		if b, ok := at[step]; ok {
			out.Add(step, s.Values[i]/b-1)
		}
	}
	return out
}

// Scaled multiplies all values.
func (s Series) Scaled(by float64) Series {
	out := Series{Steps: s.Steps, Values: slices.Clone(s.Values)}
	for i := range out.Values {
		out.Values[i] *= by
	}
	return out
}

// Finite returns the finite values.
func (s Series) Finite() (list []float64) {
	for _, v := range s.Values {
		if report.Finite(v) {
			list = append(list, v)
		}
	}
	return list
}

// mostPoints is the maximum number of points of a curve in a page.
const mostPoints = 2000

// Over returns the curve of the means of several runs, with the range from the least to the
// greatest value. If a value is not finite, the mean is NaN, because a mean of the other runs would
// favor them. It reports whether there is anything to draw. Of a long curve, a point is the mean of
// some steps.
func Over(runs []Series) (c Curve, ok bool) {
	type sum struct{ total, count, low, high float64 }
	at := map[int]*sum{}
	var steps []int
	for _, run := range runs {
		for i, step := range run.Steps {
			s := at[step]
			if s == nil {
				s = &sum{low: math.Inf(1), high: math.Inf(-1)}
				at[step], steps = s, append(steps, step)
			}
			v := run.Values[i]
			if s.total, s.count = s.total+v, s.count+1; report.Finite(v) {
				s.low, s.high, ok = min(s.low, v), max(s.high, v), true
			}
		}
	}
	slices.Sort(steps)
	size := (len(steps) + mostPoints - 1) / mostPoints
	for part := range slices.Chunk(steps, max(size, 1)) {
		mean := sum{low: math.Inf(1), high: math.Inf(-1)}
		for _, step := range part {
			s := at[step]
			mean.total += s.total / s.count / float64(len(part))
			mean.low, mean.high = min(mean.low, s.low), max(mean.high, s.high)
		}
		c.X, c.Y = append(c.X, float64(part[len(part)-1])), append(c.Y, mean.total)
		c.Low, c.High = append(c.Low, mean.low), append(c.High, mean.high)
	}
	if len(runs) < 2 && size < 2 {
		c.Low, c.High = nil, nil
	}
	return c, ok
}
