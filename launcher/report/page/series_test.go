package page

import (
	"math"
	"testing"
)

// A curve has every step of a short run. A long one has few points, each with the range of its
// steps. What is not finite is a gap.
func TestCurve(t *testing.T) {
	var short, long Series
	for i, v := range []float64{1, math.NaN(), math.Inf(1), 3} {
		short.Add(i+1, v)
	}
	c, ok := curve(short)
	if !ok || c.Low != nil || len(c.X) != 4 || c.X[3] != 4 || c.Y[0] != 1 || !math.IsNaN(c.Y[1]) || !math.IsNaN(c.Y[2]) || c.Y[3] != 3 {
		t.Errorf("%+v", c)
	}
	for i := range 3 * mostPoints {
		long.Add(i, float64(i%3))
	}
	long.Values[4] = math.NaN() // of point 1, with 0 and 2
	c, _ = curve(long)
	if n := len(c.X); n != mostPoints || c.X[0] != 2 || c.X[n-1] != 3*mostPoints-1 || c.Y[1] != 1 || c.Y[5] != 1 || c.Low[5] != 0 || c.High[5] != 2 {
		t.Errorf("%d points from %v to %v", len(c.X), c.X[0], c.X[len(c.X)-1])
	}
	for _, s := range []Series{{}, {Steps: []int{1}, Values: []float64{math.NaN()}}} {
		if _, ok := curve(s); ok {
			t.Errorf("%v is there", s)
		}
	}
}
