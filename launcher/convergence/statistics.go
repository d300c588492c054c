package convergence

// The statistics of a comparison: paired differences between seeds, their scatter, their course
// over a run, their error by the choice of the text, and their trend over sizes. Package design has
// the tests.

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

// difference compares losses with the baseline's, seed by seed. Both have the same length. It
// returns nil if there are none, if a loss is not finite or if a baseline is not positive, because
// nothing can be stated then.
func difference(losses, baseline []float64, d design.Design) *Difference {
	var pairs []float64
	for i, loss := range losses {
		if pair := loss/baseline[i] - 1; baseline[i] > 0 && finite(pair) {
			pairs = append(pairs, pair)
		}
	}
	if len(pairs) == 0 || len(pairs) < len(losses) {
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

// Scatter returns the scatter of the arm's pairs. It returns false if there are fewer than two.
func (a Arm) Scatter() (s design.Scatter, ok bool) {
	if a.Train == nil || a.HeldOut == nil || a.Train.Seeds < 2 {
		return s, false
	}
	s = design.Scatter{Train: a.Train.SD, HeldOut: a.HeldOut.SD, Pairs: a.Train.Seeds}
	if r := correlation(a.Train.Pairs, a.HeldOut.Pairs); finite(r) {
		s.Correlation = max(-1, min(r, 1))
	}
	return s, true
}

// Scatter returns the scatter of the arm that scatters most. It returns false if there is none.
func (r Result) Scatter() (most design.Scatter, ok bool) {
	for i, arm := range r.Arms {
		if s, has := arm.Scatter(); has && i > 0 && math.Max(s.Train, s.HeldOut) >= math.Max(most.Train, most.HeldOut) {
			most, ok = s, true
		}
	}
	return most, ok
}

// ReadScatter returns the scatter in the result of an earlier comparison.
func ReadScatter(folder string) (s design.Scatter, err error) {
	r, err := ReadResult(folder)
	if err != nil {
		return s, err
	}
	s, ok := r.Scatter()
	if !ok {
		return s, fmt.Errorf("the comparison in %s has no arm with two seeds or more, so it does not say how much pairs scatter", folder)
	}
	return s, nil
}

// measured is the scatter of MXFP8 against BF16 in the comparisons of bench/results/convergence.
var measured = []struct {
	flavor            string
	steps, batch, seq int
	lr                float64
	scatter           design.Scatter
}{
	{"debug", 1500, 16, 128, 1e-3, design.Scatter{Train: 0.00338, HeldOut: 0.00408, Correlation: 0.66, Pairs: 20}},
	{"300K", 1500, 32, 128, 8e-3, design.Scatter{Train: 0.01255, HeldOut: 0.01098, Correlation: 0.89, Pairs: 8}},
	{"debug", 1500, 16, 128, 3e-3, design.Scatter{Train: 0.00925, HeldOut: 0.01082, Correlation: 0.97, Pairs: 10}},
}

// MeasuredScatter returns the scatter of runs of several precisions with a configuration, if it was
// measured.
func MeasuredScatter(cfg config.Config) (s design.Scatter, ok bool) {
	for _, m := range measured {
		flavor, err := config.Default(m.flavor)
		if err == nil && cfg.Model == flavor.Model && cfg.Steps == m.steps &&
			cfg.Batch == m.batch && cfg.Seq == m.seq && cfg.Optimizer.LR == m.lr {
			return m.scatter, true
		}
	}
	return s, false
}

// windows is the number of windows that a run is divided into.
const windows = 8

// course returns the paired differences in mean training loss over each window of the steps, as a
// mean over seeds. Windows in which a loss is not finite are left out.
func course(runs, baseline []Run) (all []Window) {
	if len(runs) == 0 {
		return nil
	}
	steps := len(runs[0].Log.Steps)
	for i := range windows {
		lo, hi := steps*i/windows, steps*(i+1)/windows
		var pairs []float64
		for j, run := range runs {
			if pair := meanLoss(run.Log.Steps, lo, hi)/meanLoss(baseline[j].Log.Steps, lo, hi) - 1; finite(pair) {
				pairs = append(pairs, pair)
			}
		}
		if len(pairs) == len(runs) {
			s := sampleOf(pairs)
			all = append(all, Window{lo + 1, hi, s.Mean, s.Interval(0.025)})
		}
	}
	return all
}

// meanLoss returns the mean training loss of steps [lo, hi). It is NaN if a step is missing or
// there are none.
func meanLoss(steps []record.Step, lo, hi int) float64 {
	if hi > len(steps) {
		return math.NaN()
	}
	var sum float64
	for _, s := range steps[lo:hi] {
		sum += float64(s.Loss)
	}
	return sum / float64(hi-lo)
}

// textError returns the standard error of the difference in validation loss, as a fraction of the
// baseline's, over parts of the text: the parts are a sample of text as the seeds are one of runs.
// It is 0 without two parts that all runs have measured.
func textError(runs, baseline []Run) float64 {
	arm, base := partMeans(runs), partMeans(baseline)
	if len(arm) < 2 || len(arm) != len(base) {
		return 0
	}
	differences := make([]float64, len(arm))
	for i := range arm {
		differences[i] = arm[i] - base[i]
	}
	_, sd := meanSD(differences)
	e := sd / math.Sqrt(float64(len(arm))) / mean(base)
	if !finite(e) {
		return 0
	}
	return e
}

// partMeans returns the loss of each part of the text, as a mean over runs, or nil if the runs have
// different numbers of parts.
func partMeans(runs []Run) (means []float64) {
	for _, run := range runs {
		var passes []record.Number
		if run.Log != nil && run.Log.Done != nil {
			passes = run.Log.Done.Passes
		}
		if means == nil {
			means = make([]float64, len(passes))
		}
		if len(passes) != len(means) {
			return nil
		}
		for i, loss := range passes {
			means[i] += float64(loss) / float64(len(runs))
		}
	}
	return means
}

// Trend is a line through the mean differences of a loss at several sizes, each weighted by its
// precision.
type Trend struct {
	Slope float64    // change of the difference per factor of ten in parameters
	CI95  [2]float64 // of Slope
}

// sizeGap is the difference of a loss at a model size.
type sizeGap struct {
	parameters int64
	*Difference
}

// trendOf fits a line to differences against the logarithm of the size. It returns false without
// two sizes.
func trendOf(all []sizeGap) (t Trend, ok bool) {
	if !slices.ContainsFunc(all, func(d sizeGap) bool { return d.parameters != all[0].parameters }) {
		return t, false
	}
	var weights, x, y, pairs float64
	for _, d := range all {
		w := float64(d.Seeds) / (d.SD * d.SD)
		weights, x, y, pairs = weights+w, x+w*d.size(), y+w*d.Mean, pairs+float64(d.Seeds)
	}
	x, y = x/weights, y/weights
	var sxx, sxy float64
	for _, d := range all {
		w, dx := float64(d.Seeds)/(d.SD*d.SD), d.size()-x
		sxx, sxy = sxx+w*dx*dx, sxy+w*dx*(d.Mean-y)
	}
	free := pairs - float64(len(all)) // of the scatter within sizes
	half := design.StudentsT(free).Quantile(0.975) / math.Sqrt(sxx)
	t.Slope = sxy / sxx
	t.CI95 = [2]float64{t.Slope - half, t.Slope + half}
	return t, true
}

func (s sizeGap) size() float64 { return math.Log10(float64(s.parameters)) }
