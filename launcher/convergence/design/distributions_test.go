package design

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// Both distributions are gonum's.
func TestDistributions(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-14*math.Abs(b) }
	for _, nu := range []float64{1, 2, 3, 9, 19.5, 300} {
		want := distuv.StudentsT{Sigma: 1, Nu: nu}
		for _, p := range []float64{1e-6, 0.01, 0.3, 0.5, 0.9, 0.975, 1 - 1e-9} {
			x := want.Quantile(p)
			if got := StudentsT(nu).Quantile(p); !near(got, x) {
				t.Errorf("%v degrees: the quantile of %v is %v, want %v", nu, p, got, x)
			}
			if got := StudentsT(nu).CDF(x); !near(got, want.CDF(x)) {
				t.Errorf("%v degrees: the probability below %v is %v, want %v", nu, x, got, want.CDF(x))
			}
		}
	}
	for _, degrees := range []int{1, 2, 3, 19} {
		own, other := rand.New(rand.NewPCG(1, 2)), rand.NewPCG(1, 2)
		for i := range 1000 {
			got, want := chiSquared(own, degrees), distuv.ChiSquared{K: float64(degrees), Src: other}.Rand()
			if !near(got, want) {
				t.Fatalf("%d degrees: draw %d is %v, want %v", degrees, i, got, want)
			}
		}
	}
}
