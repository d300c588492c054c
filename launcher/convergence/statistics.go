package convergence

// The statistics of a comparison: paired differences between seeds. Package design has the tests.

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"spmoe/launcher/convergence/design"
)

// difference compares losses with the baseline's, seed by seed. Both have the same length. It
// returns nil if a loss is not finite or a baseline is not positive, because nothing can be stated
// then.
func difference(losses, baseline []float64, d design.Design) *Difference {
	var pairs []float64
	for i, loss := range losses {
		if baseline[i] <= 0 {
			return nil
		}
		pairs = append(pairs, loss/baseline[i]-1)
	}
	return differenceOf(pairs, d)
}

// differenceOf describes differences by seed, each a fraction of the baseline's loss. It returns
// nil if there are none, or if one is not finite.
func differenceOf(pairs []float64, d design.Design) *Difference {
	if len(pairs) == 0 || slices.ContainsFunc(pairs, func(p float64) bool { return !finite(p) }) {
		return nil
	}
	s := sampleOf(pairs)
	look, _ := d.At(s.Pairs)
	p, ci := s.P(d.Margin), s.Interval(look.Equivalence)
	return &Difference{
		Pairs: pairs, Mean: s.Mean, SD: s.SD, Seeds: s.Pairs, P: p, Level: look.Equivalence, Within: p < look.Equivalence,
		CI95: s.Interval(look.Difference / 2), CI90: ci, Smallest: max(-ci[0], ci[1]),
	}
}

func sampleOf(pairs []float64) design.Sample {
	mean, sd := meanSD(pairs)
	return design.Sample{Pairs: len(pairs), Mean: mean, SD: sd}
}

// sample returns the numbers that a verdict is about.
func (d *Difference) sample() design.Sample {
	return design.Sample{Pairs: d.Seeds, Mean: d.Mean, SD: d.SD}
}

// Sign returns 1 or -1 if the loss is shown to be higher or lower than the baseline's, otherwise 0.
func (d *Difference) Sign() int {
	switch {
	case d == nil || d.Seeds < 2:
		return 0
	case d.CI95[0] > 0:
		return 1
	case d.CI95[1] < 0:
		return -1
	}
	return 0
}

// Outside reports whether the difference is shown to exceed a margin: CI90 lies beyond it.
func (d *Difference) Outside(margin float64) bool {
	return d != nil && d.Seeds > 1 && (d.CI90[0] > margin || d.CI90[1] < -margin)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// meanSD returns the mean and the standard deviation of a sample. The latter is 0 for one number.
func meanSD(xs []float64) (average, sd float64) {
	if len(xs) == 1 {
		return xs[0], 0
	}
	return mean(xs), math.Sqrt(products(xs, xs) / float64(len(xs)-1))
}

// mean returns the mean of a sample that is not empty.
func mean(xs []float64) float64 { return floats.Sum(xs) / float64(len(xs)) }

// correlation returns the correlation of pairs of numbers (Pearson's r).
func correlation(xs, ys []float64) float64 {
	return products(xs, ys) / math.Sqrt(products(xs, xs)*products(ys, ys))
}

// products returns Σ (x - mean of x)(y - mean of y), corrected for the rounding of the means: Chan,
// Golub and LeVeque, "Algorithms for computing the sample variance", 1983, (1.7).
func products(xs, ys []float64) (sum float64) {
	mx, my := mean(xs), mean(ys)
	var restX, restY float64
	for i := range xs {
		dx, dy := xs[i]-mx, ys[i]-my
		sum, restX, restY = sum+dx*dy, restX+dx, restY+dy
	}
	return sum - restX*restY/float64(len(xs))
}

// median returns the median of a sample that is not empty. For an even count it is the mean of the
// two middle numbers; gonum interpolates in other ways.
func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	n := len(xs)
	if n%2 == 0 {
		return (xs[n/2-1] + xs[n/2]) / 2
	}
	return xs[n/2]
}

// spread returns the scatter of the finite losses.
func spread(losses []float64) Spread {
	var xs []float64
	for _, loss := range losses {
		if finite(loss) {
			xs = append(xs, loss)
		}
	}
	if len(xs) == 0 {
		return Spread{}
	}
	mean, sd := meanSD(xs)
	if mean == 0 {
		return Spread{}
	}
	return Spread{mean, sd / math.Abs(mean)}
}
