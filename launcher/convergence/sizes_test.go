package convergence

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Two sizes a factor of ten apart: the slope is the difference of the means, its standard error the
// root of the sum of their squared errors, and t has 4 degrees of freedom.
func TestTrend(t *testing.T) {
	small := &Difference{Seeds: 3, Mean: 0.001, SD: 0.003}
	large := &Difference{Seeds: 3, Mean: 0.004, SD: 0.006}
	got, ok := trendOf([]sizeGap{{1e6, small}, {1e7, large}})
	half := 2.7764451 * math.Sqrt(0.003*0.003/3+0.006*0.006/3)
	if !ok || math.Abs(got.Slope-0.003) > 1e-12 || math.Abs(got.CI95[0]-(0.003-half)) > 1e-9 || math.Abs(got.CI95[1]-(0.003+half)) > 1e-9 {
		t.Errorf("%+v, want 0.003 ± %v", got, half)
	}
	for name, all := range map[string][]sizeGap{"none": nil, "one size": {{1e6, small}}, "one size twice": {{1e6, small}, {1e6, large}}} {
		if got, ok := trendOf(all); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The interval of the slope covers the true one in 95 % of made-up studies of three sizes.
func TestTrendCovers(t *testing.T) {
	const studies, slope = 4000, 0.002
	random, covered := rand.New(rand.NewPCG(5, 6)), 0
	for range studies {
		var all []sizeGap
		for i, parameters := range []int64{3e5, 1e6, 3e6} {
			pairs := make([]float64, 8)
			for j := range pairs {
				pairs[j] = slope*math.Log10(float64(parameters)) + 0.002*float64(i+1)*random.NormFloat64()
			}
			s := sampleOf(pairs)
			all = append(all, sizeGap{parameters, &Difference{Seeds: s.Pairs, Mean: s.Mean, SD: s.SD}})
		}
		if trend, _ := trendOf(all); trend.CI95[0] < slope && slope < trend.CI95[1] {
			covered++
		}
	}
	if share := float64(covered) / studies; share < 0.92 || share > 0.97 {
		t.Errorf("%.3f are covered", share)
	}
}

func TestWriteSizes(t *testing.T) {
	result := func(parameters int64, mean float64) Result {
		d := &Difference{Seeds: 4, Mean: mean, SD: 0.002}
		r := Result{Arms: []Arm{{Name: "bf16"}, {Name: "mxfp8", Train: d, HeldOut: d}, {Name: "fp32", Train: &Difference{Seeds: 1}}}}
		r.Setup.Parameters = parameters
		return r
	}
	var out strings.Builder
	if err := WriteSizes(&out, []Result{result(1e7, 0.004), result(1e6, 0.001)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mxfp8 against bf16", "training          1 M parameters,  4 seeds: +0.100 %", "trend per factor of ten in parameters: +0.300 %; excluded: below"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	other := result(1e7, 0)
	other.Arms[0].Name = "fp32"
	if err := WriteSizes(&out, []Result{result(1e6, 0), other}); err == nil || !strings.Contains(err.Error(), "two sizes") {
		t.Errorf("two baselines: %v", err)
	}
}
