package page

import (
	"math"
	"slices"
	"testing"
)

func of(values ...float64) (s Series) {
	for i, v := range values {
		s.Add(i+1, v)
	}
	return s
}

// same compares with NaN equal to itself and room for rounding.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.IsNaN(x) && math.IsNaN(y) || x == y || math.Abs(x-y) < 1e-12 })
}

func TestSeries(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		name string
		got  Series
		want []float64
	}{
		{"trailing", of(1, 2, 6, 8).Trailing(2), []float64{1.5, 4, 7}},
		{"trailing by more than there is", of(1, 2, 6).Trailing(9), []float64{3}},
		{"trailing, nothing", of().Trailing(3), nil},
		{"gaps stay and do not spread", of(1, nan, 3, math.Inf(1)).Trailing(2), []float64{nan, 3, nan}},
		{"relative", of(2, 3, 5).Relative(of(1, 4)), []float64{1, -0.25}},
		{"relative to nothing finite", of(2, 3).Relative(of(nan, 0)), []float64{nan, nan}},
		{"scaled", of(1, nan).Scaled(100), []float64{100, nan}},
	} {
		if !same(test.got.Values, test.want) || len(test.got.Steps) != len(test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.got.Values, test.want)
		}
	}
	if s := of(1, 2, 6, 8).Trailing(3); !slices.Equal(s.Steps, []int{3, 4}) {
		t.Errorf("trailing means end at steps %v", s.Steps)
	}
}

func TestOver(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	c, ok := Over([]Series{of(1, 2, nan, nan), {Steps: []int{2, 4}, Values: []float64{4, 7}}})
	if !ok || !same(c.X, []float64{1, 2, 3, 4}) || !same(c.Y, []float64{1, 3, nan, nan}) {
		t.Errorf("%+v", c)
	}
	if !same(c.Low, []float64{1, 2, inf, 7}) || !same(c.High, []float64{1, 4, -inf, 7}) {
		t.Errorf("%+v", c)
	}
	for _, list := range [][]Series{nil, {of()}, {of(nan)}} {
		if _, ok := Over(list); ok {
			t.Errorf("%v is there", list)
		}
	}
}

// A long curve has few points, each with the range of its steps.
func TestLongCurve(t *testing.T) {
	var long Series
	for i := range 3 * mostPoints {
		long.Add(i, float64(i%3))
	}
	c, _ := Over([]Series{long})
	if n := len(c.X); n != mostPoints || c.X[0] != 2 || c.X[n-1] != 3*mostPoints-1 || c.Y[5] != 1 || c.Low[5] != 0 || c.High[5] != 2 {
		t.Errorf("%d points from %v to %v", len(c.X), c.X[0], c.X[len(c.X)-1])
	}
	if c, _ := Over([]Series{of(1, 2)}); c.Low != nil || len(c.X) != 2 {
		t.Errorf("%+v", c)
	}
}
