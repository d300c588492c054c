package projection

import (
	"math"
	"testing"
)

// frozen is the parameter file that the figures below were made with. Whoever changes a parameter
// says so here, and in the figures.
const frozen = "ee67e6f862d1ab434d3ddd54d47f321fc1f6c4edd88d6312e9c75774f18617d5"

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

// The intervals of the headline hold the published figures.
func TestIntervals(t *testing.T) {
	h, err := Scenarios()[0].Project(Central())
	if err != nil {
		t.Fatal(err)
	}
	for i, published := range Targets() {
		if r := h.Range(i); i > 0 && (r.P10 > published || r.P90 < published || r.P50 != h.Budgets[i].Tokens || r.Width() > 0.30) {
			t.Errorf("%.0f: interval %+v", published, r)
		}
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
