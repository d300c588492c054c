package projection

// Intervals: seeded Monte Carlo over the priors, times a discrepancy estimated from held-out rows;
// and the effect of one parameter at a time.

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// interval returns the 10th and 90th percentile of f over samples of the priors, each multiplied by
// a lognormal factor with this sigma.
func interval(samples int, seed uint64, sigma float64, f func(Settings) (float64, error)) (out [2]float64, err error) {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	values := make([]float64, 0, samples)
	for range samples {
		set := draw(rng)
		v, err := f(set)
		if err != nil {
			return out, err
		}
		values = append(values, v*math.Exp(sigma*rng.NormFloat64()))
	}
	slices.Sort(values)
	return [2]float64{quantile(values, .1), quantile(values, .9)}, nil
}

// quantile returns a quantile of sorted values.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(p*float64(len(sorted)-1)+0.5)]
}

// Range is an 80 % interval with its median.
type Range struct {
	P10, P50, P90 float64
	Sigma         float64 // discrepancy included in the interval
}

// Width returns half the interval divided by its middle.
func (r Range) Width() float64 { return (r.P90 - r.P10) / (r.P90 + r.P10) }

// Intervals returns the ranges of a scenario's three throughputs.
func (s Scenario) Intervals(samples int, seed uint64, sigma float64) ([3]Range, error) {
	return scenarioIntervals([]Scenario{s}, samples, seed, sigma)
}

// ReadingIntervals returns the ranges over all readings of the runs: in each sample, a scenario is
// drawn by its weight. The recipe forces balance (0.9), and the pinned code duplicates tokens as we
// read it (0.8).
func ReadingIntervals(samples int, seed uint64, sigma float64) ([3]Range, error) {
	return scenarioIntervals(Scenarios(), samples, seed, sigma)
}

// scenarioIntervals draws a scenario and the parameters. Every sample fits its own residual to 651,
// so that only the differences between the runs are uncertain.
func scenarioIntervals(all []Scenario, samples int, seed uint64, sigma float64) (out [3]Range, err error) {
	rng := rand.New(rand.NewPCG(seed, 0x5ce))
	var values [3][]float64
	for range samples {
		set, runs := draw(rng), all[0].runs()
		if len(all) > 1 {
			runs = pickScenario(all, rng.Float64()).runs()
		}
		residual, err := Calibrate(runs[0], PublishedBF16, set)
		if err != nil {
			return out, err
		}
		noise := rng.NormFloat64()
		for i, r := range runs {
			r.Residual = residual
			v, err := throughput(r, set)
			if err != nil {
				return out, err
			}
			if i > 0 {
				v *= math.Exp(sigma * noise)
			}
			values[i] = append(values[i], v)
		}
	}
	for i, v := range values {
		slices.Sort(v)
		out[i] = Range{quantile(v, .1), quantile(v, .5), quantile(v, .9), sigma}
	}
	return out, nil
}

// pickScenario returns the scenario at quantile u of the weights.
func pickScenario(all []Scenario, u float64) Scenario {
	for _, s := range all {
		if u -= s.Weight; u < 0 {
			return s
		}
	}
	return all[0]
}

// RunInterval returns the range of one run's throughput. A run that inherits the calibration's
// residual inherits that of each sample.
func RunInterval(r Run, samples int, seed uint64, sigma float64) (Range, error) {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	values := make([]float64, 0, samples)
	for range samples {
		set := draw(rng)
		var err error
		if r.Residual, err = Carried(r, set); err != nil {
			return Range{}, err
		}
		v, err := throughput(r, set)
		if err != nil {
			return Range{}, err
		}
		values = append(values, v*math.Exp(sigma*rng.NormFloat64()))
	}
	slices.Sort(values)
	return Range{quantile(values, .1), quantile(values, .5), quantile(values, .9), sigma}, nil
}

// Discrepancy returns the spread of the held-out residuals of H1 and H2, which the target's
// intervals include. Rows with one prediction count once.
func Discrepancy() (float64, error) {
	sum, n := 0.0, 0.0
	for _, name := range []string{"H1", "H2"} {
		g := Group{Name: name}
		if err := g.predict(); err != nil {
			return 0, err
		}
		square, weight := g.residuals(0)
		sum, n = sum+square, n+weight
	}
	return math.Sqrt(sum / max(n, 1)), nil
}

// Swing is the effect of one parameter, with the others at their central values.
type Swing struct {
	Parameter
	AtLow, AtHigh float64 // tokens/s
}

// Tornado returns the parameters' effects on f, in tokens/s, largest first. It leaves out effects
// below half a token.
func Tornado(f func(Settings) (float64, error)) ([]Swing, error) {
	var all []Swing
	for i, p := range Parameters() {
		s := Swing{Parameter: p}
		for _, end := range []struct {
			value float64
			to    *float64
		}{{p.Low, &s.AtLow}, {p.High, &s.AtHigh}} {
			set := Central()
			set[i] = end.value
			v, err := f(set)
			if err != nil {
				return nil, err
			}
			*end.to = v
		}
		if math.Abs(s.AtHigh-s.AtLow) > 0.5 {
			all = append(all, s)
		}
	}
	sortSwings(all)
	return all, nil
}

func sortSwings(all []Swing) {
	slices.SortStableFunc(all, func(a, b Swing) int {
		return cmp.Compare(math.Abs(b.AtHigh-b.AtLow), math.Abs(a.AtHigh-a.AtLow))
	})
}

// HeadlineTornado returns the tornado of DeepEP as run. It adds two interpretations of that run,
// whose effects exceed that of any kernel's rate: whether tokens are duplicated, and whether
// routing is random.
func HeadlineTornado() ([]Swing, error) {
	asRun := Scenarios()[0]
	all, err := Tornado(asRun.Throughput(1))
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		Parameter
		low, high Scenario
	}{
		{Parameter{Name: "duplicate", Value: 2, Low: 1, High: 2, Unit: "GPUs of a pair", Kind: Assumed, Source: "reading of the pinned code", About: "GPUs of a tensor-parallel pair that dispatch all tokens"},
			Scenario{Routing: RoundRobin, Duplicate: 1, Fused: true}, asRun},
		{Parameter{Name: "random routing", Value: 0, Low: 0, High: 1, Unit: "0: round-robin, 1: uniform", Kind: Exact, Source: "the recipe forces round-robin", About: "where tokens go"},
			asRun, Scenario{Routing: Uniform, Duplicate: 2, Fused: true}},
	} {
		s := Swing{Parameter: f.Parameter}
		if s.AtLow, err = f.low.Throughput(1)(Central()); err != nil {
			return nil, err
		}
		if s.AtHigh, err = f.high.Throughput(1)(Central()); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	sortSwings(all)
	return all, nil
}

// Throughput returns a function of the settings for [Tornado]: the throughput of the scenario's run
// i, calibrated again each time.
func (s Scenario) Throughput(i int) func(Settings) (float64, error) {
	runs := s.runs()
	return func(set Settings) (float64, error) {
		residual, err := Calibrate(runs[0], PublishedBF16, set)
		if err != nil {
			return 0, err
		}
		r := runs[i]
		r.Residual = residual
		return throughput(r, set)
	}
}
