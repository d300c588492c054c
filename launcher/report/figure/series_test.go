package figure

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
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) < 1e-12 })
}

func TestSeries(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		name string
		got  Series
		want []float64
	}{
		{"centred", of(1, 2, 6, 8, 3).Centred(3), []float64{1, 3, 16. / 3, 17. / 3, 5.5}},
		{"centred by 1", of(4, 5).Centred(1), []float64{4, 5}},
		{"centred, nothing", of().Centred(9), nil},
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
	nan := math.NaN()
	c := Over([]Series{of(1, 2, nan, nan), {Steps: []int{2, 4}, Values: []float64{4, 7}}})
	if !same(c.Steps, []float64{1, 2, 3, 4}) || !same(c.Mean, []float64{1, 3, nan, nan}) || !same(c.Low, []float64{1, 2, nan, 7}) || !same(c.High, []float64{1, 4, nan, 7}) {
		t.Errorf("%+v", c)
	}
	if c.Empty() || !Over(nil).Empty() || !Over([]Series{of(nan)}).Empty() {
		t.Error("empty is wrong")
	}
}

func TestThin(t *testing.T) {
	var long Curve
	for i := range 1003 {
		long.Add(float64(i), 0, 0, 0)
	}
	thin := long.Thin(300)
	if n := len(thin.Steps); n > 302 || n < 200 || thin.Steps[0] != 0 || thin.Steps[n-1] != 1002 {
		t.Errorf("%d points from %v to %v", n, thin.Steps[0], thin.Steps[n-1])
	}
	if all := long.Thin(1003); len(all.Steps) != 1003 {
		t.Errorf("%d points of 1003 where all fit", len(all.Steps))
	}
}
