package projection

import (
	"math"
	"testing"
)

// A row that was published corrects its twin almost fully, a distant relation less, and a stranger
// hardly. Every record makes the interval narrower.
func TestCorrection(t *testing.T) {
	s := data().parameters.Residuals
	known := publishedRun("gb300-26.06")
	given := []record{{"gb300-26.06", traitsOf("gb300-26.06", known), 0.3, false}}
	other := known
	other.GPU, other.Stack = "GB200", "megatron_dedup"
	stranger := Run{Model: "16B", GPU: "MI355X", Stack: "primus_deepep", Precision: "bf16"}
	last, narrowest := 0.31, 0.0
	for _, r := range []Run{known, other, stranger} {
		traits := traitsOf("gb300-26.06", r)
		mean, variance, err := s.correction(traits, given)
		if err != nil {
			t.Fatal(err)
		}
		if mean >= last || mean < 0 || variance <= narrowest || variance >= s.variance(traits) {
			t.Errorf("%s on %s: correction %.3f, variance %.4f of %.4f; the closer one %.3f and %.4f", r.Stack, r.GPU, mean, variance, s.variance(traits), last, narrowest)
		}
		last, narrowest = mean, variance
	}
	if last > 0.1 {
		t.Errorf("a stranger is corrected by %.3f", last)
	}
}

func TestTraits(t *testing.T) {
	a := traitsOf("gb300-26.06.01", publishedRun("gb300-26.06"))
	if a.framework != "megatron" || a.family != "DeepSeek-V3" || a.generation != "GB" || a.gpu != "GB300" || a.month != 12*26+6 || !a.quantized {
		t.Errorf("%+v", a)
	}
	if b := traitsOf("automodel-v3", Run{Stack: "automodel", GPU: "h100", Model: "Qwen3-30B-A3B"}); b.framework != "titan" || b.generation != "H" || b.family != "Qwen3" || b.month != 0 {
		t.Errorf("%+v", b)
	}
	s := data().parameters.Residuals
	later := a
	later.month += 6
	if near, far := s.covariance(a, a), s.covariance(a, later); near <= far {
		t.Errorf("half a year apart the covariance is %g, otherwise %g", far, near)
	}
}

// Published rows predicted from those of other configurations: the error that the blind test's
// expectation rests on.
func TestLeaveOut(t *testing.T) {
	mean, inside, err := LeaveOutError()
	if err != nil {
		t.Fatal(err)
	}
	rounded(t, "mean absolute error, %", 100*mean, 9.2, 0)
	if inside < 0.65 || inside > 0.95 {
		t.Errorf("%.0f %% lie inside", 100*inside)
	}
	out, err := LeaveOut()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		if o.sd <= 0 || math.IsNaN(o.Error) {
			t.Errorf("%+v", o)
		}
	}
}
