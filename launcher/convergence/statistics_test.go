package convergence

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"spmoe/launcher/convergence/design"
)

// Reference values come from the closed forms of Student's distribution function,
//
//	1 degree of freedom:  F(t) = 1/2 + atan(t)/π
//	2 degrees:            F(t) = 1/2 + t/(2·sqrt(2+t²))
//	4 degrees:            F(t) = 1/2 + 3/8·t/sqrt(1+t²/4)·(1 - t²/(12·(1+t²/4)))
//
// and from the printed tables' t(0.95) = 6.313752, 2.919986, 2.131847. The interval of both losses
// together has t(0.9875) = 25.451700, 6.205347, 3.495406. The margin is 0.5 %.
func TestDifference(t *testing.T) {
	for name, c := range map[string]struct {
		percent       []float64
		mean, sd      float64
		low95, high95 float64
		low90, high90 float64
		p             float64
		equivalent    bool
	}{
		"inside": {percent: []float64{0.1, -0.05, 0.05}, mean: 0.0333333, sd: 0.0763763, low95: -0.2402967, high95: 0.3069634,
			low90: -0.0954259, high90: 0.1620926, p: 0.00440537, equivalent: true},
		"near the margin": {percent: []float64{0.45, 0.30, 0.60}, mean: 0.45, sd: 0.15, low95: -0.0873988, high95: 0.9873988,
			low90: 0.1971218, high90: 0.7028782, p: 0.31101776},
		"five seeds": {percent: []float64{0.2, -0.1, 0.4, 0.1, 0.3}, mean: 0.18, sd: 0.1923538, low95: -0.1206862, high95: 0.4806862,
			low90: -0.0033884, high90: 0.3633884, p: 0.01023794, equivalent: true},
		"two seeds, below": {percent: []float64{-0.2, -0.3}, mean: -0.25, sd: 0.0707107, low95: -1.5225850, high95: 1.0225850,
			low90: -0.5656876, high90: 0.0656876, p: 0.06283296},
		"one seed":            {percent: []float64{0.01}, mean: 0.01, low95: 0.01, high95: 0.01, low90: 0.01, high90: 0.01, p: 1},
		"the same to the bit": {percent: []float64{0, 0, 0}, p: 0, equivalent: true},
		"far off, no scatter": {percent: []float64{100, 100}, mean: 100, low95: 100, high95: 100, low90: 100, high90: 100, p: 1},
		"far off, below, scatter": {percent: []float64{-1, -1.1, -0.9}, mean: -1, sd: 0.1, low95: -1.3582659, high95: -0.6417341,
			low90: -1.1685855, high90: -0.8314145, p: 0.99346377}, // t = -8.660254
	} {
		baseline, losses := make([]float64, len(c.percent)), make([]float64, len(c.percent))
		for i, p := range c.percent {
			baseline[i] = 2 + float64(i)
			losses[i] = baseline[i] * (1 + p/100)
		}
		d := difference(losses, baseline, design.Fixed(0.005, len(losses)))
		if d == nil {
			t.Errorf("%s: there is none", name)
			continue
		}
		for what, v := range map[string][2]float64{
			"mean": {100 * d.Mean, c.mean}, "SD": {100 * d.SD, c.sd}, "p": {d.P, c.p},
			"lower end of the 95 % interval": {100 * d.CI95[0], c.low95}, "upper end of the 95 % interval": {100 * d.CI95[1], c.high95},
			"lower end of the 90 % interval": {100 * d.CI90[0], c.low90}, "upper end of the 90 % interval": {100 * d.CI90[1], c.high90},
		} {
			if !(math.Abs(v[0]-v[1]) < 2e-6) {
				t.Errorf("%s: %s is %.8f, want %.8f", name, what, v[0], v[1])
			}
		}
		if d.Within != c.equivalent || d.Seeds != len(c.percent) || len(d.Pairs) != len(c.percent) {
			t.Errorf("%s: %+v", name, d)
		}
		if d.Smallest != max(-d.CI90[0], d.CI90[1]) || d.Level != 0.05 {
			t.Errorf("%s: %+v", name, d)
		}
		// The test rejects at 5 % exactly where the 90 % interval lies inside the margin.
		if inside := d.CI90[0] > -0.005 && d.CI90[1] < 0.005; d.Seeds > 1 && inside != d.Within {
			t.Errorf("%s: the interval says %v, the test %v", name, inside, d.Within)
		}
	}
}

func TestNoDifference(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string][2][]float64{
		"no seeds": {}, "NaN": {{2, nan}, {2, 2}}, "infinite": {{inf, 2}, {2, 2}}, "baseline NaN": {{2, 2}, {nan, 2}}, "baseline 0": {{2, 2}, {0, 2}},
	} {
		if d := difference(c[0], c[1], design.Fixed(0.005, len(c[0]))); d != nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		losses []float64
		want   Spread
	}{
		"three":    {[]float64{2, 2.1, 1.9}, Spread{2, 0.05}},
		"one":      {[]float64{2}, Spread{2, 0}},
		"none":     {nil, Spread{}},
		"one left": {[]float64{math.NaN(), 3}, Spread{3, 0}},
		"zeros":    {[]float64{0, 0}, Spread{}},
	} {
		if got := spread(c.losses); math.Abs(got.Mean-c.want.Mean) > 1e-12 || math.Abs(got.SD-c.want.SD) > 1e-12 {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The moments of samples are gonum's.
func TestMoments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 8, 101} {
		xs, ys := make([]float64, n), make([]float64, n)
		for i := range xs {
			xs[i], ys[i] = 1000+rng.NormFloat64(), rng.NormFloat64()
			ys[i] += xs[i]
		}
		mean, sd := meanSD(xs)
		wantMean, wantSD := stat.MeanStdDev(xs, nil)
		for name, pair := range map[string][2]float64{
			"mean": {mean, wantMean}, "standard deviation": {sd, wantSD}, "correlation": {correlation(xs, ys), stat.Correlation(xs, ys, nil)},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-13*math.Abs(pair[1]) {
				t.Errorf("%d numbers: the %s is %v, want %v", n, name, pair[0], pair[1])
			}
		}
	}
}
