package projection

// The effect of one parameter at a time.

import (
	"cmp"
	"math"
	"slices"
)

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
