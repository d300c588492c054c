// Package bench measures what involves more than one package, such as kernels against the machine's
// limits. Both sides are measured in one run and in turns, so that a busy neighbor or a changing
// clock affects both.
package bench

import (
	"slices"
	"time"
)

// Result is one measured kernel.
type Result struct {
	Name  string  `json:"name"`
	Shape string  `json:"shape"` // MxNxK of a product, GxMxNxK of G products, otherwise rows x columns
	Value float64 `json:"value"` // median
	Unit  string  `json:"unit"`  // GFLOP/s or GB/s
	// the machine's limit or a required value, in the same unit, measured in turns with the kernel
	Limit float64 `json:"limit"`
	Share float64 `json:"share"` // median of value / limit
	Bound string  `json:"bound"` // what the limit is

	// OverBF16 is the speed relative to the same product in BF16, measured in turns; 0 if there is
	// none.
	OverBF16 float64 `json:"over_bf16,omitempty"`
}

// A Rate measures for about d how much is done per second.
type Rate func(d time.Duration) float64

// inTurns measures each rate once per round, for about d, and returns the results as [rate][round].
func inTurns(rounds int, d time.Duration, rates ...Rate) [][]float64 {
	taken := make([][]float64, len(rates))
	for range rounds {
		for i, rate := range rates {
			taken[i] = append(taken[i], rate(d))
		}
	}
	return taken
}

// Median returns the median of x, which is not empty.
func Median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}

// MedianRatio returns the median of x over y, round by round.
func MedianRatio(x, y []float64) float64 {
	ratios := make([]float64, len(x))
	for i := range x {
		ratios[i] = x[i] / y[i]
	}
	return Median(ratios)
}

// kernel is something to measure, with work units (1e9 FLOPs or bytes) per call.
type kernel struct {
	name, shape string
	work        float64
	limit       limit
	prepare     func(s *suite) (run func()) // allocates the operands in the suite's arena
	inBF16      *kernel                     // for a quantized product, the same product in BF16
}

// limit is a rate that the machine can reach, in units per second.
type limit struct {
	name, unit string
	prepare    func(s *suite) Rate
}

// effort bounds the time of a measurement.
type effort struct {
	rounds int
	sample time.Duration // per side and round
}

func (e effort) measure(s *suite, k kernel) Result {
	mark := s.ex.Mark()
	defer s.ex.Release(mark)
	rates := []Rate{k.limit.prepare(s), k.rate(s)}
	if k.inBF16 != nil {
		rates = append(rates, k.inBF16.rate(s))
	}
	return k.result(inTurns(e.rounds, e.sample, rates...))
}

// result summarizes the rates of the limit, the kernel and, if there is one, the product in BF16.
func (k kernel) result(taken [][]float64) Result {
	r := Result{
		Name: k.name, Shape: k.shape, Value: Median(taken[1]), Unit: k.limit.unit,
		Limit: Median(taken[0]), Share: MedianRatio(taken[1], taken[0]), Bound: k.limit.name,
	}
	if k.inBF16 != nil {
		// The work of the two may be counted in different bytes, so compare calls per second.
		r.OverBF16 = MedianRatio(taken[1], taken[2]) / k.work * k.inBF16.work
	}
	return r
}

// rate prepares the kernel and returns its rate in work units per second.
func (k kernel) rate(s *suite) Rate { return rateOf(k.work, k.prepare(s)) }

// rateOf returns the rate of f, with work units per call.
func rateOf(work float64, f func()) Rate {
	f() // excludes allocation and the first use of operands
	return func(d time.Duration) float64 {
		begin := time.Now()
		for calls := 1; ; calls++ {
			f()
			if t := time.Since(begin); t >= d {
				return work * float64(calls) / t.Seconds()
			}
		}
	}
}
