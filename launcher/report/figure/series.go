package figure

// Series of measurements over the steps of a run, and their summary over several seeds.

import (
	"math"
	"slices"
)

// Series is one quantity of one run: a value per step, NaN if it is not finite.
type Series struct {
	Steps  []int
	Values []float64
}

// Add appends the value of a step.
func (s *Series) Add(step int, value float64) {
	if !Finite(value) {
		value = math.NaN()
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, value)
}

// Centred returns centered means over windows of up to n values. Near the beginning, where losses
// fall steeply, windows are smaller so that they stay symmetric.
func (s Series) Centred(n int) Series {
	return s.mean(func(i int) (from, to int) {
		half := min(n/2, i)
		return i - half, min(i+half+1, len(s.Values))
	})
}

// Trailing returns the means of n consecutive values each, from the first n values to the last n.
func (s Series) Trailing(n int) Series {
	n = min(n, len(s.Values))
	out := s.mean(func(i int) (from, to int) { return max(0, i+1-n), i + 1 })
	if n == 0 {
		return out
	}
	return Series{out.Steps[n-1:], out.Values[n-1:]}
}

// mean averages the finite values in the window of each finite value.
func (s Series) mean(window func(i int) (from, to int)) Series {
	sums, counts := make([]float64, len(s.Values)+1), make([]float64, len(s.Values)+1)
	for i, v := range s.Values {
		sums[i+1], counts[i+1] = sums[i], counts[i]
		if Finite(v) {
			sums[i+1] += v
			counts[i+1]++
		}
	}
	out := Series{Steps: s.Steps, Values: make([]float64, len(s.Values))}
	for i, v := range s.Values {
		from, to := window(i)
		if out.Values[i] = math.NaN(); Finite(v) {
			out.Values[i] = (sums[to] - sums[from]) / (counts[to] - counts[from])
		}
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
		if Finite(v) {
			list = append(list, v)
		}
	}
	return list
}

// Median returns the middle of some values, the upper one of two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Curve summarizes a quantity of one arm over steps: the mean, minimum and maximum of its seeds.
type Curve struct{ Steps, Mean, Low, High []float64 }

// Over summarizes the series of several seeds. If a value is not finite, the mean is NaN, because a
// mean of the other seeds would favor the arm. Minimum and maximum are over the finite values.
func Over(runs []Series) (c Curve) {
	type sum struct {
		total, count float64
		extent       Extent
	}
	at := map[int]*sum{}
	var steps []int
	for _, run := range runs {
		for i, step := range run.Steps {
			s := at[step]
			if s == nil {
				s = &sum{extent: NewExtent()}
				at[step], steps = s, append(steps, step)
			}
			s.total += run.Values[i]
			s.count++
			s.extent.Add(run.Values[i])
		}
	}
	slices.Sort(steps)
	for _, step := range steps {
		s := at[step]
		if s.extent.Empty() {
			s.extent = Extent{math.NaN(), math.NaN()}
		}
		c.Add(float64(step), s.total/s.count, s.extent.Min, s.extent.Max)
	}
	return c
}

// Add appends the values of a step.
func (c *Curve) Add(step, mean, low, high float64) {
	c.Steps, c.Mean = append(c.Steps, step), append(c.Mean, mean)
	c.Low, c.High = append(c.Low, low), append(c.High, high)
}

// Empty reports whether there is nothing to draw.
func (c Curve) Empty() bool { return !slices.ContainsFunc(c.Low, Finite) }

// Sparse reports whether there are too few points for a line: it would show a course that was
// not measured.
func (c Curve) Sparse() bool { return len(c.Steps) < 5 }

// Thin keeps at most about n points, including the first and the last. A screen cannot show more.
func (c Curve) Thin(n int) (out Curve) {
	size := (len(c.Steps) + n - 1) / n
	for i, step := range c.Steps {
		if i == 0 || (len(c.Steps)-1-i)%size == 0 {
			out.Add(step, c.Mean[i], c.Low[i], c.High[i])
		}
	}
	return out
}
