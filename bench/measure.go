// Package bench measures what needs more than one package: kernels against the machine's own
// limits, in one run and in turns, so that a busy neighbour or a moving clock hits both sides.
package bench

import (
	"slices"
	"time"
)

// Result is one measured kernel.
type Result struct {
	Name  string  `json:"name"`
	Shape string  `json:"shape"` // MxNxK of a product, rows x columns otherwise
	Value float64 `json:"value"` // median
	Unit  string  `json:"unit"`  // GFLOP/s or GB/s
	Limit float64 `json:"limit"` // what the machine could do, in the same unit, measured in turns with the kernel
	Share float64 `json:"share"` // median of value / limit
	Bound string  `json:"bound"` // what the limit is
}

// kernel is something to measure: work units (1e9 FLOPs or bytes) a call.
type kernel struct {
	name, shape string
	work        float64
	limit       limit
	run         func()
}

// limit is a rate that the machine can reach, in units a second.
type limit struct {
	name, unit string
	measure    func(d time.Duration) float64
}

// effort is how long a measurement may take.
type effort struct {
	rounds int
	sample time.Duration // of the kernel, and of its limit, in one round
}

func (e effort) measure(k kernel) Result {
	calls := k.calibrate(e.sample)
	var values, limits, shares []float64
	for range e.rounds {
		top := k.limit.measure(e.sample / 2)
		begin := time.Now()
		for range calls {
			k.run()
		}
		rate := float64(calls) * k.work / time.Since(begin).Seconds()
		values, limits, shares = append(values, rate), append(limits, top), append(shares, rate/top)
	}
	return Result{
		Name: k.name, Shape: k.shape, Value: median(values), Unit: k.limit.unit,
		Limit: median(limits), Share: median(shares), Bound: k.limit.name,
	}
}

// calibrate returns the number of calls that take about d, after a warm-up.
func (k kernel) calibrate(d time.Duration) int {
	k.run()
	for n := 1; ; n *= 2 {
		begin := time.Now()
		for range n {
			k.run()
		}
		if t := time.Since(begin); t >= d/4 || n >= 1<<20 {
			return max(1, int(float64(n)*float64(d)/float64(t)))
		}
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
