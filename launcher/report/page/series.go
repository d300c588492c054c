package page

// Series of measurements over the steps of a run.

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

// named returns a quantity of the steps that have it, by its key in JSON lines.
func named(log *record.Log, key string) Series { return quantity(log, record.Named(key)) }

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

// heldOut returns the validation losses.
func heldOut(log *record.Log) (s Series) {
	for _, eval := range log.Evals {
		s.Add(eval.Step, float64(eval.Loss))
	}
	return s
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

// curve returns the curve of a series, and whether there is anything to draw. Of a long one, a
// point is the mean of the finite values of some steps, with the range from the least to the
// greatest.
func curve(s Series) (c Curve, ok bool) {
	size := max(1, (len(s.Steps)+mostPoints-1)/mostPoints)
	for from := 0; from < len(s.Steps); from += size {
		end := min(from+size, len(s.Steps))
		part := Series{Values: s.Values[from:end]}.Finite()
		c.X, c.Y = append(c.X, float64(s.Steps[end-1])), append(c.Y, mean(part))
		if ok = ok || len(part) > 0; size > 1 && len(part) > 0 {
			c.Low, c.High = append(c.Low, slices.Min(part)), append(c.High, slices.Max(part))
		} else if size > 1 {
			c.Low, c.High = append(c.Low, math.NaN()), append(c.High, math.NaN())
		}
	}
	return c, ok
}

// mean averages values. It is NaN if there are none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
