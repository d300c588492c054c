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
	Shape string  `json:"shape"` // MxNxK of a product, GxMxNxK of G of them, rows x columns otherwise
	Value float64 `json:"value"` // median
	Unit  string  `json:"unit"`  // GFLOP/s, GB/s or ms
	Limit float64 `json:"limit"` // what the machine could do or what is asked, in the same unit, measured in turns with the kernel
	Share float64 `json:"share"` // median of value / limit
	Bound string  `json:"bound"` // what the limit is

	// OverBF16 is the speed over that of the same product in BF16, measured in turns; 0 where there
	// is none.
	OverBF16 float64 `json:"over_bf16,omitempty"`
}

// A Rate measures for about d how much is done a second.
type Rate func(d time.Duration) float64

// Turns takes each rate once a round, for about d, and returns them as [rate][round].
func Turns(rounds int, d time.Duration, rates ...Rate) [][]float64 {
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

// kernel is something to measure: work units (1e9 FLOPs or bytes) a call.
type kernel struct {
	name, shape string
	work        float64
	limit       limit
	prepare     func(s *suite) (run func()) // makes the operands in the suite's arena
	inBF16      *kernel                     // the same product in BF16, of a quantized one
}

// limit is a rate that the machine can reach, in units a second.
type limit struct {
	name, unit string
	prepare    func(s *suite) Rate
}

// effort is how long a measurement may take.
type effort struct {
	rounds int
	sample time.Duration // of each side in one round
}

func (e effort) measure(s *suite, k kernel) Result {
	mark := s.ex.Mark()
	defer s.ex.Release(mark)
	rates := []Rate{k.limit.prepare(s), k.rate(s)}
	if k.inBF16 != nil {
		rates = append(rates, k.inBF16.rate(s))
	}
	return k.result(Turns(e.rounds, e.sample, rates...))
}

// result sums up the rates of the limit, the kernel and, where there is one, the product in BF16.
func (k kernel) result(taken [][]float64) Result {
	r := Result{
		Name: k.name, Shape: k.shape, Value: Median(taken[1]), Unit: k.limit.unit,
		Limit: Median(taken[0]), Share: MedianRatio(taken[1], taken[0]), Bound: k.limit.name,
	}
	if k.inBF16 != nil {
		// The work of the two may be counted in bytes of their own: calls a second compare.
		r.OverBF16 = MedianRatio(taken[1], taken[2]) / k.work * k.inBF16.work
	}
	return r
}

// rate prepares the kernel and returns its rate in work units a second.
func (k kernel) rate(s *suite) Rate { return rateOf(k.work, k.prepare(s)) }

// rateOf returns the rate of f, work units a call.
func rateOf(work float64, f func()) Rate {
	f() // what it allocates and what its operands' first use costs is not its speed
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
