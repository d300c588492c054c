package convergence

// The statistics of a comparison: paired differences between seeds, Student's t, and two one-sided
// tests for equivalence (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// level is the significance level of the test.
const level = 0.05

// difference compares losses with the baseline's, seed by seed. Both have the same length. It
// returns nil if a loss is not finite or a baseline is not positive, because nothing can be stated
// then.
func difference(losses, baseline []float64, margin float64) *Difference {
	d := &Difference{Seeds: len(losses)}
	for i, loss := range losses {
		pair := loss/baseline[i] - 1
		if !finite(pair) || baseline[i] <= 0 {
			return nil
		}
		d.Pairs = append(d.Pairs, pair)
	}
	if len(d.Pairs) == 0 {
		return nil
	}
	d.Mean, d.SD = meanSD(d.Pairs)
	d.CI95 = interval(d.Mean, d.SD, d.Seeds, 0.95)
	d.CI90 = interval(d.Mean, d.SD, d.Seeds, 1-2*level)
	d.P = tost(d.Mean, d.SD, d.Seeds, margin)
	d.Within = d.P < level
	return d
}

// Outside reports whether the difference exceeds a margin: the 90 % interval of its mean lies
// beyond it on one side.
func (d *Difference) Outside(margin float64) bool {
	return d != nil && d.Seeds > 1 && (d.CI90[0] > margin || d.CI90[1] < -margin)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// meanSD returns the mean and the standard deviation of a sample. The latter is 0 for one number.
func meanSD(xs []float64) (mean, sd float64) {
	if len(xs) == 1 {
		return xs[0], 0
	}
	return stat.MeanStdDev(xs, nil)
}

// median returns the median of a sample that is not empty. For an even count it is the mean of the
// two middle numbers; the quantiles of gonum/stat interpolate in other ways.
func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	n := len(xs)
	if n%2 == 0 {
		return (xs[n/2-1] + xs[n/2]) / 2
	}
	return xs[n/2]
}

// interval returns the confidence interval of the mean of n numbers.
func interval(mean, sd float64, n int, confidence float64) [2]float64 {
	if n < 2 || sd == 0 {
		return [2]float64{mean, mean}
	}
	half := student(n).Quantile(0.5+confidence/2) * sd / math.Sqrt(float64(n))
	return [2]float64{mean - half, mean + half}
}

// tost returns the larger p of two one-sided t-tests. The first tests that the mean of n numbers is
// above -margin, the second that it is below margin. For a single number p is 1.
func tost(mean, sd float64, n int, margin float64) float64 {
	switch inside := math.Abs(mean) < margin; {
	case n < 2 || !inside && sd == 0:
		return 1
	case sd == 0:
		return 0
	}
	// The test against the nearer bound has the larger p.
	t := (margin - math.Abs(mean)) / (sd / math.Sqrt(float64(n)))
	return student(n).CDF(-t)
}

func student(n int) distuv.StudentsT { return distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)} }

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
