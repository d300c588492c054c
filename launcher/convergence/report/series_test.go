package report

import (
	"math"
	"slices"
	"testing"

	"spmoe/launcher/record"
)

func of(values ...float64) (s series) {
	for i, v := range values {
		s.add(i+1, v)
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
		got  series
		want []float64
	}{
		{"centred", of(1, 2, 6, 8, 3).centred(3), []float64{1, 3, 16. / 3, 17. / 3, 5.5}},
		{"centred by 1", of(4, 5).centred(1), []float64{4, 5}},
		{"centred, nothing", of().centred(9), nil},
		{"trailing", of(1, 2, 6, 8).trailing(2), []float64{1.5, 4, 7}},
		{"trailing by more than there is", of(1, 2, 6).trailing(9), []float64{3}},
		{"trailing, nothing", of().trailing(3), nil},
		{"gaps stay and do not spread", of(1, nan, 3, math.Inf(1)).trailing(2), []float64{nan, 3, nan}},
		{"relative", of(2, 3, 5).relative(of(1, 4)), []float64{1, -0.25}},
		{"relative to nothing finite", of(2, 3).relative(of(nan, 0)), []float64{nan, nan}},
		{"scaled", of(1, nan).scaled(100), []float64{100, nan}},
	} {
		if !same(test.got.values, test.want) || len(test.got.steps) != len(test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.got.values, test.want)
		}
	}
	if s := of(1, 2, 6, 8).trailing(3); !slices.Equal(s.steps, []int{3, 4}) {
		t.Errorf("trailing means end at steps %v", s.steps)
	}
}

func TestOver(t *testing.T) {
	nan := math.NaN()
	c := over([]series{of(1, 2, nan, nan), {steps: []int{2, 4}, values: []float64{4, 7}}})
	if !same(c.steps, []float64{1, 2, 3, 4}) || !same(c.mean, []float64{1, 3, nan, nan}) || !same(c.low, []float64{1, 2, nan, 7}) || !same(c.high, []float64{1, 4, nan, 7}) {
		t.Errorf("%+v", c)
	}
	if c.empty() || !over(nil).empty() || !over([]series{of(nan)}).empty() {
		t.Error("empty is wrong")
	}
}

func TestThin(t *testing.T) {
	var long curve
	for i := range 1003 {
		long.add(float64(i), 0, 0, 0)
	}
	thin := long.thin(300)
	if n := len(thin.steps); n > 302 || n < 200 || thin.steps[0] != 0 || thin.steps[n-1] != 1002 {
		t.Errorf("%d points from %v to %v", n, thin.steps[0], thin.steps[n-1])
	}
	if all := long.thin(1003); len(all.steps) != 1003 {
		t.Errorf("%d points of 1003 where all fit", len(all.steps))
	}
}

// The right end of the curve of differences is what the test judges.
func TestDifferenceEndsAtTheResult(t *testing.T) {
	r := sample(sampleRecipes, 3, 200)
	p := painter{r, looksOf(r.Arms)}
	list := p.differenceCurves(func(log *record.Log) series { return losses(log).trailing(r.Setup.Tail) })
	if len(list) != 2 {
		t.Fatalf("%d curves", len(list))
	}
	for _, d := range list {
		want := r.Arms[d.arm].Train
		if got := d.mean[len(d.mean)-1]; math.Abs(got-100*want.Mean) > 1e-9 {
			t.Errorf("%s ends at %v%%, want %v%%", r.Arms[d.arm].Name, got, 100*want.Mean)
		}
		if low := d.low[len(d.low)-1]; math.Abs(low-100*slices.Min(want.Pairs)) > 1e-9 {
			t.Errorf("%s: the lowest seed ends at %v%%, want %v%%", r.Arms[d.arm].Name, low, 100*slices.Min(want.Pairs))
		}
	}
}
