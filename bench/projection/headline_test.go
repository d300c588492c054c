package projection

import (
	"math"
	"testing"
)

// frozen is the parameter file that the figures below were made with. Whoever changes a parameter
// says so here, and in the figures.
const frozen = "22e168c959b44c2f58065e0448f7d8577312f56027b3f9eafbd7c7a3974f11be"

func TestFrozen(t *testing.T) {
	if ParameterHash() != frozen {
		t.Errorf("data/parameters.json has the SHA-256 %s, want %s: a changed parameter needs a new version, hash and figures", ParameterHash(), frozen)
	}
	if len(ParameterVersion()) != len("2026-11-21") {
		t.Errorf("version %q", ParameterVersion())
	}
	for i, p := range Parameters() {
		s := Central()
		if s[i] != p.Value {
			t.Errorf("%s is %g, want %g", p.Name, s[i], p.Value)
		}
	}
}

// The headline's figures.
func TestHeadline(t *testing.T) {
	want := map[string][2]float64{"as_run": {851, 902}, "clean": {1146, 1187}, "learned_twice": {658, 687}, "learned": {953, 981}, "simple": {896, 921}}
	weights := 0.0
	for _, s := range Scenarios() {
		weights += s.Weight
		h, err := s.Project(Central())
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(h.Budgets[0].Tokens-651) > 1e-9 {
			t.Errorf("%s: calibrated to %.6f, not to 651", s.Name, h.Budgets[0].Tokens)
		}
		for i := range 2 {
			rounded(t, s.Name, h.Budgets[i+1].Tokens, want[s.Name][i], 0)
			if got := h.Budgets[i+1].Term(Residual).MS; got != h.Residual {
				t.Errorf("%s: the residual is %g after %g: it must be carried unchanged", s.Name, got, h.Residual)
			}
		}
		if s.Name != "as_run" && s.Name != "simple" {
			continue
		}
		for i, e := range h.Error[1:] {
			if math.Abs(e) > 0.08 {
				t.Errorf("%s misses %.0f by %+.1f %%", s.Name, Targets()[i+1], 100*e)
			}
		}
	}
	if math.Abs(weights-1) > 1e-12 {
		t.Errorf("the readings have weights of %g in sum", weights)
	}
	b, err := Scenarios()[0].Project(Central())
	if err != nil {
		t.Fatal(err)
	}
	rounded(t, "model TFLOP/s at 651", b.Budgets[0].TFLOPS, 223, 0)
	rounded(t, "MFU at 651, %", 100*b.Budgets[0].MFU, 9.9, 1)
	rounded(t, "HFU at 651, %", 100*b.Budgets[0].HFU, 13.2, 1)
	rounded(t, "step at 651, s", b.Budgets[0].Step, 201.3, 1)
}

// Intervals hold the published figures, are the same for the same seed, and grow with the
// discrepancy.
func TestIntervals(t *testing.T) {
	sigma, err := Discrepancy()
	if err != nil {
		t.Fatal(err)
	}
	if sigma < 0.05 || sigma > 0.3 {
		t.Errorf("the held-out residuals spread by %.3f", sigma)
	}
	asRun := Scenarios()[0]
	a, err := asRun.Intervals(400, 1, sigma)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := asRun.Intervals(400, 1, sigma)
	narrow, _ := asRun.Intervals(400, 1, 0)
	if a != again {
		t.Errorf("the same seed gives %v and %v", a, again)
	}
	for i, published := range Targets() {
		if i > 0 && (a[i].P10 > published || a[i].P90 < published || a[i].Width() > 0.30 || narrow[i].Width() >= a[i].Width()) {
			t.Errorf("%.0f: interval %+v, without discrepancy %+v", published, a[i], narrow[i])
		}
	}
	readings, err := ReadingIntervals(400, 1, sigma)
	if err != nil {
		t.Fatal(err)
	}
	clean, err := Scenarios()[1].Intervals(400, 1, sigma)
	if err != nil {
		t.Fatal(err)
	}
	if r := readings[1]; r.P10 >= a[1].P10 || r.P90 <= a[1].P90 || r.P90 >= clean[1].P90 {
		t.Errorf("over all readings %+v, as run %+v, clean %+v", r, a[1], clean[1])
	}
	if math.Abs(a[0].P10-651) > 1e-6 || math.Abs(a[0].P90-651) > 1e-6 {
		t.Errorf("the calibration row is not certain: %+v", a[0])
	}
}

// A triangle is drawn by its quantiles.
func TestDraw(t *testing.T) {
	p := Parameter{Low: 1, Value: 2, High: 5, Dist: "triangle"}
	const n = 100000
	sum := 0.0
	for i := range n {
		v := p.draw((float64(i) + 0.5) / n)
		if v < p.Low || v > p.High {
			t.Fatalf("drew %g", v)
		}
		sum += v
	}
	if mean := sum / n; math.Abs(mean-8.0/3) > 1e-3 {
		t.Errorf("the mean is %g, want %g", mean, 8.0/3)
	}
	either := Parameter{Low: 1, Value: 1, High: 2, Dist: "either"}
	if either.draw(0.79) != 1 || either.draw(0.81) != 2 {
		t.Errorf("a choice gives %g and %g", either.draw(0.79), either.draw(0.81))
	}
	if p.draw(0) != p.Low || p.draw(1) != p.High || math.Abs(p.draw(0.25)-p.Value) > 1e-12 {
		t.Errorf("quantiles %g, %g, %g", p.draw(0), p.draw(0.25), p.draw(1))
	}
}

// Every term of a budget says what it is, and they add up.
func TestBudgetAddsUp(t *testing.T) {
	for _, row := range Rows() {
		e, err := newEstimator(row.Run, Central())
		if err != nil {
			t.Fatalf("%s: %v", row.ID, err)
		}
		b := e.budget(row.Run.memory(e.model))
		sum := 0.0
		for _, x := range b.Terms {
			sum += x.MS
			if x.MS < 0 || x.Formula == "" || x.Source == "" || x.Kind == "" {
				t.Errorf("%s: term %v is %+v", row.ID, x.Symbol, x)
			}
		}
		if math.Abs(sum-b.MS) > 1e-12 || math.Abs(1e3/b.MS-b.Tokens) > 1e-9 {
			t.Errorf("%s: terms add up to %g of %g", row.ID, sum, b.MS)
		}
		if b.HFU < b.MFU || row.Run.Recompute != "none" && b.HFU == b.MFU {
			t.Errorf("%s: HFU %.4f with recompute %s, MFU %.4f", row.ID, b.HFU, row.Run.Recompute, b.MFU)
		}
		fast, err := throughput(row.Run, Central())
		if err != nil || fast != b.Tokens {
			t.Errorf("%s: %g tokens/s, the budget says %g (%v)", row.ID, fast, b.Tokens, err)
		}
	}
}
