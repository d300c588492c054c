package referee

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// noisy returns x with relative noise of a size per element.
func noisy(rng *rand.Rand, x []float64, size float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * (1 + size*rng.NormFloat64())
	}
	return y
}

// pairOf returns a tensor of 64 rows of 64 with noise, and floors of the same noise.
func pairOf(rng *rand.Rand) tensorPair {
	want := make([]float64, 64*64)
	for i := range want {
		want[i] = rng.NormFloat64()
	}
	p := tensorPair{got: noisy(rng, want, 4e-3), want: want, rows: 64, least: 1e-4}
	for range 3 {
		p.floors = append(p.floors, noisy(rng, want, 4e-3))
	}
	return p
}

// Equal noise is right, far below the thresholds. What is wrong is found by the statistic for it.
func TestComparisons(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *tensorPair)
		wrong  string // statistic; "": right
		whole  bool   // the gradient of a weight is wrong
	}{
		"equal noise":     {func(p *tensorPair) {}, "", false},
		"three times it":  {func(p *tensorPair) { p.got = noisy(rand.New(rand.NewPCG(9, 9)), p.want, 12e-3) }, "median", true},
		"one row":         {func(p *tensorPair) { p.got[64*5+3] += 2 }, "worst", true},
		"a bias":          {func(p *tensorPair) { scaled(p.got, 1.004) }, "factor", false},
		"a factor":        {func(p *tensorPair) { scaled(p.got, 2) }, "median", true},
		"zeros":           {func(p *tensorPair) { scaled(p.got, 0) }, "median", true},
		"a NaN":           {func(p *tensorPair) { p.got[70] = math.NaN() }, "worst", true},
		"padding is off":  {func(p *tensorPair) { p.got[0] = 99; p.skip = func(row int) bool { return row == 0 } }, "", true},
		"nothing at all":  {func(p *tensorPair) { scaled(p.got, 0); scaled(p.want, 0); p.floors = nil }, "", false},
		"out of a zero":   {func(p *tensorPair) { scaled(p.want, 0); p.floors = nil }, "median", true},
		"a small channel": {func(p *tensorPair) { outlier(p, 1e3); p.got[64*7+5] += 3 }, "worst", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairOf(rand.New(rand.NewPCG(8, 1)))
			c.change(&p)
			rows := p.compareRows("output", "x")
			if rows.Wrong() != (c.wrong != "") || rows.Wrong() && rows.Statistic != c.wrong || !rows.Wrong() && rows.Strain >= 0.5 {
				t.Errorf("by row: %s of strain %.3g, want %q", rows.Statistic, rows.Strain, c.wrong)
			}
			whole := p.compareWhole("gradient", "w")
			if name == "a small channel" { // judged by row alone
				return
			}
			if whole.Wrong() != c.whole {
				t.Errorf("as a whole: %s of strain %.3g, want wrong %v", whole.Statistic, whole.Strain, c.whole)
			}
			if want := map[string]float64{"a factor": 2, "zeros": 0}; whole.Scaled {
				if f, ok := want[name]; !ok || math.Abs(whole.Factor-f) > 1e-3 {
					t.Errorf("scaled by %g", whole.Factor)
				}
			}
		})
	}
}

func scaled(x []float64, by float64) {
	for i := range x {
		x[i] *= by
	}
}

// outlier makes channel 9 so much larger.
func outlier(p *tensorPair, by float64) {
	for _, x := range append([][]float64{p.got, p.want}, p.floors...) {
		for r := range 64 {
			x[r*64+9] *= by
		}
	}
}

// A choice is right if rounding could have made it. With groups, these are judged first.
func TestRegret(t *testing.T) {
	scores := []float64{.9, .8, .3, .2, .7, .1, .65, .6} // two groups of four
	tensor := func(x []float64) reference.Tensor { return reference.Tensor{Dims: []int{1, len(x)}, Data: x} }
	for name, c := range map[string]struct {
		groups []float64
		picks  []float64
		wrong  bool
	}{
		"the best":                    {nil, []float64{0, 1}, false},
		"the order is of no account":  {nil, []float64{1, 0}, false},
		"the third":                   {nil, []float64{0, 4}, true},
		"one twice":                   {nil, []float64{0, 0}, true},
		"none of the experts":         {nil, []float64{0, 8}, true},
		"the best of the other group": {[]float64{1.7, 1.35}, []float64{4, 6}, true},
		"the best of the best group":  {[]float64{1.2, 1.35}, []float64{4, 6}, false},
		"a group within rounding":     {[]float64{1.7, 1.6999}, []float64{4, 6}, false},
	} {
		m := &reference.Module{Path: "gate", Kind: reference.Router}
		tr := &trial{module: m, tokens: 1, openGroups: 1, call: reference.Call{Batch: &reference.Batch{}, Choices: map[string]reference.Tensor{"gate.indices": tensor(c.picks)}}}
		exact := outcome{extra: map[string]reference.Tensor{"choice": tensor(scores)}}
		floor := outcome{extra: map[string]reference.Tensor{"choice": tensor(noisy(rand.New(rand.NewPCG(1, 2)), scores, 1e-4))}}
		if c.groups != nil {
			exact.extra["groups"], floor.extra["groups"] = tensor(c.groups), tensor(noisy(rand.New(rand.NewPCG(3, 4)), c.groups, 1e-4))
		}
		if got, ok := tr.regret(exact, []outcome{floor}, nil); !ok || got.Wrong() != c.wrong {
			t.Errorf("%s: %+v, want wrong %v", name, got, c.wrong)
		}
	}
}

// A gradient that is not the sum of its parts is told apart into them.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	parts := []Part{{Name: "dp rank 0", Axis: "dp"}, {Name: "dp rank 1", Axis: "dp"}}
	for i := range parts {
		for range 100 {
			parts[i].Values = append(parts[i].Values, rng.NormFloat64())
		}
	}
	for _, c := range []struct {
		a, b float64
		want string
	}{
		{1, 0, "the gradient of dp rank 0 alone: the sum over dp was not done"}, {2, 1, "dp rank 0 × 2 + dp rank 1"},
		{0.5, 0, "dp rank 0 × 1/2, without dp rank 1"}, {1, 1, ""}, {0.5, 0.5, ""},
	} {
		y := make([]float64, 100)
		for i := range y {
			y[i] = c.a*parts[0].Values[i] + c.b*parts[1].Values[i]
		}
		got := fitParts(y, parts, func(rest float64) bool { return rest < 1e-9 }, 1e-9)
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%g, %g: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	for x, want := range map[float64]string{2.0004: "2", 0.125: "1/8", -1: "-1", 0: "0", 1.27345: "1.273", 1024.3: "1024", 0.0371: "0.0371"} {
		if got := factorText(x); got != want {
			t.Errorf("%g is %q, want %q", x, got, want)
		}
	}
}

// TestGoldens: a right step of each family is right, with room below the thresholds.
func TestGoldens(t *testing.T) {
	for _, name := range []string{"deepseek_v2lite_like", "deepseek_v3_tiny", "glm4_moe_tiny", "qwen3_moe_tiny"} {
		report, err := Judge("../golden/testdata/"+name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for statistic, strain := range report.Strains {
			if strain >= 0.5 {
				t.Errorf("%s: %s is at %.2f of its threshold", name, statistic, strain)
			}
		}
		if report.Verdict != Right || report.Compared < 50 {
			t.Errorf("%s: %s, %d compared, %v", name, report.Verdict, report.Compared, report.Doubts)
		}
	}
	if _, err := step.Open(t.TempDir()); err == nil {
		t.Error("an empty folder opens")
	}
}
