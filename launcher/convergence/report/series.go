package report

// Series of measurements over the steps of a run, and what several seeds of one arm make of them.

import (
	"math"
	"slices"
)

// series is a quantity of one run: one value a step, NaN where it is not finite.
type series struct {
	steps  []int
	values []float64
}

func (s *series) add(step int, value float64) {
	if !finite(value) {
		value = math.NaN()
	}
	s.steps, s.values = append(s.steps, step), append(s.values, value)
}

// centred returns means over windows of up to n values around each. At the beginning, where losses fall steeply, windows are smaller
// so that they stay symmetric.
func (s series) centred(n int) series {
	return s.mean(func(i int) (from, to int) {
		half := min(n/2, i)
		return i - half, min(i+half+1, len(s.values))
	})
}

// trailing returns means of the n values that end at each, from the first that has as many: the last is the mean of the last n.
func (s series) trailing(n int) series {
	n = min(n, len(s.values))
	out := s.mean(func(i int) (from, to int) { return max(0, i+1-n), i + 1 })
	if n == 0 {
		return out
	}
	return series{out.steps[n-1:], out.values[n-1:]}
}

// mean averages the finite values in the window of each finite one.
func (s series) mean(window func(i int) (from, to int)) series {
	sums, counts := make([]float64, len(s.values)+1), make([]float64, len(s.values)+1)
	for i, v := range s.values {
		sums[i+1], counts[i+1] = sums[i], counts[i]
		if finite(v) {
			sums[i+1] += v
			counts[i+1]++
		}
	}
	out := series{steps: s.steps, values: make([]float64, len(s.values))}
	for i, v := range s.values {
		from, to := window(i)
		if out.values[i] = math.NaN(); finite(v) {
			out.values[i] = (sums[to] - sums[from]) / (counts[to] - counts[from])
		}
	}
	return out
}

// relative returns how far s lies above base, as a part of base, at the steps that both have.
func (s series) relative(base series) (out series) {
	at := make(map[int]float64, len(base.steps))
	for i, step := range base.steps {
		at[step] = base.values[i]
	}
	for i, step := range s.steps {
		if b, ok := at[step]; ok {
			out.add(step, s.values[i]/b-1)
		}
	}
	return out
}

// scaled multiplies all values.
func (s series) scaled(by float64) series {
	out := series{steps: s.steps, values: slices.Clone(s.values)}
	for i := range out.values {
		out.values[i] *= by
	}
	return out
}

// curve is a quantity of one arm over steps: mean, lowest and highest of its seeds.
type curve struct{ steps, mean, low, high []float64 }

// over joins the seeds' series. Where one of them is not finite there is no mean, since that of the others would be one of the better
// seeds; lowest and highest are of the finite ones.
func over(runs []series) (c curve) {
	type sum struct {
		total, count float64
		extent       extent
	}
	at := map[int]*sum{}
	var steps []int
	for _, run := range runs {
		for i, step := range run.steps {
			s := at[step]
			if s == nil {
				s = &sum{extent: newExtent()}
				at[step], steps = s, append(steps, step)
			}
			s.total += run.values[i]
			s.count++
			s.extent.add(run.values[i])
		}
	}
	slices.Sort(steps)
	for _, step := range steps {
		s := at[step]
		if s.extent.empty() {
			s.extent = extent{math.NaN(), math.NaN()}
		}
		c.add(float64(step), s.total/s.count, s.extent.min, s.extent.max)
	}
	return c
}

func (c *curve) add(step, mean, low, high float64) {
	c.steps, c.mean = append(c.steps, step), append(c.mean, mean)
	c.low, c.high = append(c.low, low), append(c.high, high)
}

// empty reports whether there is nothing to draw.
func (c curve) empty() bool { return !slices.ContainsFunc(c.low, finite) }

// thin leaves at most about n points, which no screen tells from more; the first and the last stay.
func (c curve) thin(n int) (out curve) {
	size := (len(c.steps) + n - 1) / n
	for i, step := range c.steps {
		if i == 0 || (len(c.steps)-1-i)%size == 0 {
			out.add(step, c.mean[i], c.low[i], c.high[i])
		}
	}
	return out
}
