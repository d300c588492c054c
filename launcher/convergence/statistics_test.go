package convergence

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// Reference values come from the closed forms of Student's distribution function,
//
//	1 degree of freedom:  F(t) = 1/2 + atan(t)/π
//	2 degrees:            F(t) = 1/2 + t/(2·sqrt(2+t²))
//	4 degrees:            F(t) = 1/2 + 3/8·t/sqrt(1+t²/4)·(1 - t²/(12·(1+t²/4)))
//
// and from the printed tables' t(0.975) = 12.706205, 4.302653, 2.776445 and t(0.95) = 6.313752,
// 2.919986, 2.131847. The margin is 0.5 %.
func TestDifference(t *testing.T) {
	for name, c := range map[string]struct {
		percent                   []float64
		low, high, equivalence, p float64
		leastMargin               float64
	}{
		"inside":                {[]float64{0.1, -0.05, 0.05}, -0.1563958, 0.2230625, 0.00440537, 0.52859548, 0.1620926},
		"five seeds":            {[]float64{0.2, -0.1, 0.4, 0.1, 0.3}, -0.0588388, 0.4188388, 0.01023794, 0.10454000, 0.3633884},
		"two seeds, below":      {[]float64{-0.2, -0.3}, -0.8853102, 0.3853102, 0.06283296, 0.12566592, 0.5656876},
		"one seed":              {[]float64{0.01}, 0.01, 0.01, 1, 1, 0.01},
		"the same to the bit":   {[]float64{0, 0, 0}, 0, 0, 0, 1, 0},
		"far off, no scatter":   {[]float64{100, 100}, 100, 100, 1, 0, 100},
		"far off, with scatter": {[]float64{-1, -1.1, -0.9}, -1.2484138, -0.7515862, 0.99346377, 0.00331676, 1.1685855},
	} {
		baseline, losses := make([]float64, len(c.percent)), make([]float64, len(c.percent))
		for i, p := range c.percent {
			baseline[i] = 2 + float64(i)
			losses[i] = baseline[i] * (1 + p/100)
		}
		d := difference(losses, baseline, 0.005)
		for what, v := range map[string][2]float64{
			"lower end": {100 * d.CI95[0], c.low}, "upper end": {100 * d.CI95[1], c.high}, "p": {d.P, c.p},
			"p of equivalence": {d.Equivalence, c.equivalence}, "least margin": {100 * d.LeastMargin, c.leastMargin},
		} {
			if !(math.Abs(v[0]-v[1]) < 2e-6) {
				t.Errorf("%s: %s is %.8f, want %.8f", name, what, v[0], v[1])
			}
		}
		// The tests pass at 5 % exactly where the margin is above the least one.
		if passes := d.Equivalence < alpha; len(d.Pairs) > 1 && passes != (d.LeastMargin < 0.005) {
			t.Errorf("%s: the tests say %v, the least margin is %v", name, passes, d.LeastMargin)
		}
	}
	for _, c := range [][2]float64{{math.NaN(), 2}, {math.Inf(1), 2}, {2, math.NaN()}, {2, 0}, {1e200, 1e-200}} {
		if d := difference([]float64{c[0], 2}, []float64{c[1], 2}, 0.005); d != nil {
			t.Errorf("%v: %+v", c, d)
		}
	}
}

func TestHolm(t *testing.T) {
	got := holm([]float64{0.03, 0.001, 0.02, 0.9})
	want := []float64{0.06, 0.004, 0.06, 0.9}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-15 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// Both wrong verdicts have a chance of 5 % at most: "different" for any of three arms that share a
// baseline and do not differ, and "equivalent" for one that differs by the margin.
func TestErrors(t *testing.T) {
	const studies, seeds, margin, scatter = 4000, 8, 0.005, 0.004
	rng := rand.New(rand.NewPCG(1, 2))
	different, equivalent := 0, 0
	for range studies {
		base, losses := make([]float64, seeds), make([][]float64, 4)
		for i := range base {
			base[i] = 2 * (1 + scatter*rng.NormFloat64())
			for arm := range losses {
				shift := 0.0
				if arm == 3 {
					shift = margin
				}
				losses[arm] = append(losses[arm], 2*(1+shift+scatter*rng.NormFloat64()))
			}
		}
		var ps []float64
		for _, l := range losses[:3] {
			ps = append(ps, difference(l, base, margin).P)
		}
		if slices.Min(holm(ps)) < alpha {
			different++
		}
		if difference(losses[3], base, margin).Equivalence < alpha {
			equivalent++
		}
	}
	for what, n := range map[string]int{"different": different, "equivalent": equivalent} {
		if share := float64(n) / studies; share > 0.06 || share < 0.005 { // 0.05 and three standard errors
			t.Errorf("%s: %.2f %% of the studies are wrong", what, 100*share)
		}
	}
}

// From the stored runs of earlier studies come the stored differences, and the p that the studies
// state after Holm.
func TestStoredStudies(t *testing.T) {
	for study, want := range map[string]map[string]float64{
		"300K-100-seeds": {"mxfp8": 0.0655, "nvfp4": 3.356e-6, "bf16+null": 1},
		"wide-fp8":       {"fp8-block": 1},
		"wide-mxfp4":     {"mxfp4-e2m1": 0.0715, "mxfp4-e2m1+wgrad-only": 0.83},
	} {
		text, err := os.ReadFile("../../bench/results/convergence/" + study + "/result.json")
		var r Result
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		var ps []float64
		for i := range r.Arms[1:] {
			a, base := &r.Arms[i+1], r.Arms[0].Runs
			stored := []*Difference{a.Train, a.HeldOut}
			a.Train = difference(losses(a.Runs, training), losses(base, training), r.Margin)
			a.HeldOut = difference(losses(a.Runs, validation), losses(base, validation), r.Margin)
			for j, d := range []*Difference{a.Train, a.HeldOut} {
				if s := stored[j]; math.Abs(d.Mean-s.Mean) > 1e-12 || math.Abs(d.SD-s.SD) > 1e-12 || math.Abs(d.Equivalence-s.P) > 1e-9 { // p was that of TOST
					t.Errorf("%s, %s: %+v, stored %+v", study, a.Name, d, s)
				}
			}
			ps = append(ps, a.chance())
		}
		for i, p := range holm(ps) {
			if w, ok := want[r.Arms[i+1].Name]; ok && math.Abs(p-w) > 0.01*w {
				t.Errorf("%s, %s: p after Holm is %g, want %g", study, r.Arms[i+1].Name, p, w)
			}
		}
	}
}

// Both losses count, each by itself. The sentence says what it rests on and what it holds for.
func TestVerdicts(t *testing.T) {
	nan := math.NaN()
	base := []float64{2, 2.1, 2.2}
	near, higher, scattered := []float64{2.001, 2.102, 2.199}, []float64{2.02, 2.1205, 2.2225}, []float64{2.02, 2.08, 2.2}
	for name, c := range map[string]struct {
		baseline, train, heldOut []float64 // by seed
		verdict, says            string
	}{
		"near":                    {base, near, near, Equivalent, "least margin 0.15 % (debug with 1 M parameters, 0.01 tokens per parameter, 3 seeds)"},
		"higher by a percent":     {base, higher, higher, Different, "DIFFERENT from bf16: training loss +1.00 %"},
		"validation loss higher":  {base, near, higher, Different, "validation loss +1.00 %"},
		"scattered":               {base, scattered, scattered, Undecided, "not shown to be equivalent to bf16 within 0.5 %, nor to differ"},
		"validation scattered":    {base, near, scattered, Undecided, "about 35 new seeds would show equivalence"},
		"one seed":                {base[:1], base[:1], base[:1], Undecided, "one seed says nothing about others"},
		"no number":               {base, []float64{2, nan, 2.2}, near, Different, "mxfp8 has diverged with seed 2"},
		"have learned nothing":    {[]float64{5.545, 5.545}, []float64{5.545, 5.545}, []float64{5.545, 5.545}, Undecided, "bf16 has diverged with seed 1"}, // ln 256 is 5.5452
		"only the baseline fails": {[]float64{nan, nan}, near[:2], near[:2], Undecided, "bf16 has diverged with seed 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := made(t, "bf16,mxfp8,bf16+null", len(c.baseline), func(arm string, seed int) (train, heldOut float64) {
				if arm == "mxfp8" {
					return c.train[seed-1], c.heldOut[seed-1]
				}
				return c.baseline[seed-1], c.baseline[seed-1]
			})
			if r.Arms[0].Verdict != Baseline || r.Arms[1].Verdict != c.verdict || r.Verdict() != c.verdict {
				t.Errorf("%s and %s, want %s", r.Arms[1].Verdict, r.Verdict(), c.verdict)
			}
			// Numbers that are not finite reach neither files nor sentences.
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			sentence := r.Sentence(r.Arms[1])
			for _, word := range []string{"NaN", "Inf", "%!"} {
				if strings.Contains(string(data)+sentence, word) {
					t.Errorf("%s in %s\n%s", word, data, sentence)
				}
			}
			if !strings.Contains(sentence, c.says) {
				t.Errorf("no %q in\n%s", c.says, sentence)
			}
		})
	}
	// A comparison that calls the null arm different is not to be trusted.
	r := made(t, "bf16,mxfp8,bf16+null", 3, func(arm string, seed int) (train, heldOut float64) {
		if arm == "bf16+null" {
			return higher[seed-1], higher[seed-1]
		}
		return base[seed-1], base[seed-1]
	})
	if r.Verdict() != Undecided || !strings.Contains(r.Sentence(r.null()), "cannot be trusted") {
		t.Errorf("%s: %s", r.Verdict(), r.Sentence(r.null()))
	}
}
