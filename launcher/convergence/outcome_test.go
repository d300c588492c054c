package convergence

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"spmoe/launcher/record"
)

// made is a comparison of logs that are made up: runs of 40 steps whose losses fall to the given
// ones.
func made(t *testing.T, precision, ablations string, seeds int, final func(arm string, seed uint64) float64) Result {
	t.Helper()
	c := tiny(t, "unread", 40, "bf16,mxfp8")
	all, err := ParseRecipes(precision, ablations)
	if err != nil {
		t.Fatal(err)
	}
	c.Recipes, c.Seeds = all, seeds
	var logs []*record.Log
	tasks := c.tasks()
	for _, task := range tasks {
		loss := record.Number(final(task.recipe.Name, task.seed))
		log := &record.Log{Done: &record.Done{Step: 40, HeldOut: loss}}
		for step := 1; step <= 40; step++ {
			s := record.Step{Step: step, Loss: 6, Seconds: 0.5}
			if step > 30 { // the tail: its mean is the loss
				s.Loss = loss + record.Number(step%2)*0.2 - 0.1
			}
			if step < 4 {
				s.Seconds = 100
			}
			log.Steps = append(log.Steps, s)
		}
		logs = append(logs, log)
	}
	r, err := c.compare(tasks, logs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		losses  map[string][]float64 // by seed
		verdict string
	}{
		"near":                    {map[string][]float64{"bf16": {2, 2.1, 2.2}, "mxfp8": {2.001, 2.102, 2.199}}, Equivalent},
		"higher by a percent":     {map[string][]float64{"bf16": {2, 2.1, 2.2}, "mxfp8": {2.02, 2.12, 2.22}}, NotEquivalent},
		"lower by a percent":      {map[string][]float64{"bf16": {2, 2.1, 2.2}, "mxfp8": {1.98, 2.08, 2.18}}, NotEquivalent},
		"scattered":               {map[string][]float64{"bf16": {2, 2.1, 2.2}, "mxfp8": {2.02, 2.08, 2.2}}, NotEquivalent},
		"one seed":                {map[string][]float64{"bf16": {2}, "mxfp8": {2}}, Undecided},
		"no number":               {map[string][]float64{"bf16": {2, 2.1, 2.2}, "mxfp8": {2, nan, 2.2}}, NotEquivalent},
		"one seed, no number":     {map[string][]float64{"bf16": {2}, "mxfp8": {nan}}, NotEquivalent},
		"infinite":                {map[string][]float64{"bf16": {2, 2}, "mxfp8": {2, inf}}, NotEquivalent},
		"have learned nothing":    {map[string][]float64{"bf16": {5.545, 5.545}, "mxfp8": {5.545, 5.545}}, NotEquivalent}, // ln 256 is 5.5452
		"only the baseline fails": {map[string][]float64{"bf16": {nan, nan}, "mxfp8": {2, 2}}, NotEquivalent},
	} {
		t.Run(name, func(t *testing.T) {
			r := made(t, "bf16,mxfp8", "", len(c.losses["bf16"]), func(arm string, seed uint64) float64 { return c.losses[arm][seed-1] })
			if r.Arms[0].Verdict != Baseline || r.Arms[1].Verdict != c.verdict || r.Verdict() != c.verdict {
				t.Errorf("%s and %s, want %s", r.Arms[0].Verdict, r.Arms[1].Verdict, c.verdict)
			}
			// Numbers that are none reach neither the file nor the tables.
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var tables strings.Builder
			WriteSummary(&tables, r)
			for _, word := range []string{"NaN", "Inf"} {
				if strings.Contains(string(text)+tables.String(), word) {
					t.Errorf("%s in %s\n%s", word, text, tables.String())
				}
			}
			for line := range strings.Lines(tables.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if !strings.Contains(tables.String(), strings.ToUpper(c.verdict)) {
				t.Errorf("no verdict in\n%s", tables.String())
			}
		})
	}
}

func TestResult(t *testing.T) {
	r := made(t, "bf16,mxfp8,mxfp8-wgrad-bf16+e5m2+floor+wire", "all", 3, func(arm string, seed uint64) float64 {
		loss := 2 + 0.1*float64(seed)
		if arm == "fp32" {
			loss = 99
		}
		return loss
	})
	if n := len(r.Arms); n != 10 || len(r.Arms[2].Runs) != 3 || len(r.Arms[3].Runs) != 1 || r.Arms[3].Name != "fp32" || !r.Arms[3].Ablation {
		t.Fatalf("%d arms: %+v", n, r.Arms)
	}
	if r.Verdict() != Equivalent {
		t.Error("an ablation has spoilt the verdict")
	}
	if r.Arms[3].Verdict != NotEquivalent || r.Arms[4].Verdict != Undecided {
		t.Errorf("ablations: %s, %s", r.Arms[3].Verdict, r.Arms[4].Verdict)
	}
	if s := r.Spread.Train; math.Abs(s.Mean-2.2) > 1e-9 || math.Abs(s.SD-0.1/2.2) > 1e-9 {
		t.Errorf("the baseline's seeds: %+v", s)
	}
	if run := r.Arms[1].Runs[1]; run.Seed != 2 || math.Abs(float64(run.Train)-2.2) > 1e-9 || run.HeldOut != 2.2 || run.Diverged {
		t.Errorf("second run: %+v", run)
	}
	// 8 sequences of 32 tokens in half a second; the first steps do not count.
	if r.Setup.Tail != 10 || !slices.Equal(r.Setup.Seeds, []uint64{1, 2, 3}) || r.Arms[1].Speed != 512 || r.Arms[1].Runs[0].Speed != 512 {
		t.Errorf("setup %+v, %v tokens/s", r.Setup, r.Arms[1].Speed)
	}
	var tables strings.Builder
	WriteSummary(&tables, r)
	for line := range strings.Lines(tables.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"mxfp8-wgrad-bf16+e5m2+floor+wire\n", "(ablation)", "3 seeds: EQUIVALENT", "over its 3 seeds:\n  4.55 %"} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("no %q in\n%s", want, tables.String())
		}
	}
}

func TestTail(t *testing.T) {
	for steps, want := range map[int]int{1: 1, 9: 9, 10: 10, 199: 10, 200: 10, 1500: 75, 10000: 500} {
		if got := tail(steps); got != want {
			t.Errorf("%d steps: %d, want %d", steps, got, want)
		}
	}
	if !math.IsNaN(float64(finalLoss(nil))) {
		t.Error("no steps have a loss")
	}
}

func TestVerdict(t *testing.T) {
	arm := func(verdict string, ablation bool) Arm { return Arm{Verdict: verdict, Ablation: ablation} }
	base, yes, no, unknown := arm(Baseline, false), arm(Equivalent, false), arm(NotEquivalent, false), arm(Undecided, false)
	for _, c := range []struct {
		arms []Arm
		want string
	}{
		{nil, ""}, {[]Arm{base}, ""}, {[]Arm{base, yes, yes}, Equivalent}, {[]Arm{base, unknown, yes}, Undecided}, {[]Arm{base, yes, unknown}, Undecided},
		{[]Arm{base, yes, unknown, no}, NotEquivalent}, {[]Arm{base, yes, arm(NotEquivalent, true)}, Equivalent},
	} {
		if got := (Result{Arms: c.arms}).Verdict(); got != c.want {
			t.Errorf("%v: %q, want %q", c.arms, got, c.want)
		}
	}
}

// choices writes down the experts of tokens, two each.
func choices(step, layer int, experts ...int) record.Choices {
	c := record.Choices{Step: step, Layer: layer, TopK: 2}
	for _, e := range experts {
		c.Experts = append(c.Experts, byte(e), byte(e>>8))
	}
	return c
}

func TestAgreement(t *testing.T) {
	run := func(all ...record.Choices) Run { return Run{Log: &record.Log{Choices: all}} }
	baseline := []Run{
		run(choices(0, 1, 1, 2, 3, 4), choices(0, 2, 1, 2, 3, 4), choices(5, 1, 300, 2, 3, 4)),
		run(choices(0, 1, 1, 2, 3, 4), choices(7, 1, 1, 2)),
	}
	arm := []Run{
		run(choices(0, 1, 2, 1, 3, 5), choices(0, 2, 7, 8, 9, 10), choices(5, 1, 44, 2, 3, 4), choices(6, 1, 1, 2)),
		run(choices(0, 1, 5, 6, 3, 4), choices(7, 1, 1, 2, 3, 4)),
	}
	got := agreement(arm, baseline)
	want := []Agreement{{0, 1, (0.75 + 0.5) / 2}, {0, 2, 0}, {5, 1, 0.75}} // 300 and 44 differ in the upper byte alone
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	a := Arm{Agreement: []Agreement{{0, 1, 1}, {5, 1, 0.5}, {5, 2, 0.7}}}
	if share, ok := a.LastAgreement(); !ok || math.Abs(share-0.6) > 1e-12 {
		t.Errorf("last: %v, %v", share, ok)
	}
	if _, ok := (Arm{}).LastAgreement(); ok {
		t.Error("an arm without routers agrees")
	}
}

func TestSQNR(t *testing.T) {
	var log record.Log
	for _, noise := range []record.Number{1, 10, 1000} {
		log.Quantized = append(log.Quantized, record.Quantized{Tensor: record.Weight, Signal: 1e4, Noise: noise})
	}
	log.Quantized = append(log.Quantized, record.Quantized{Tensor: record.Input, Signal: record.Number(math.NaN()), Noise: 1},
		record.Quantized{Tensor: record.Gradient, Signal: 1})
	a := Arm{Runs: []Run{{Log: &log}}}
	for kind, want := range map[string]string{record.Weight: "30.0", record.Input: "-", record.Gradient: "exact"} {
		if got := dB(a, kind); got != want {
			t.Errorf("%s: %s dB, want %s", kind, got, want)
		}
	}
	for _, none := range []Arm{{}, {Runs: []Run{{}}}} {
		if got := dB(none, record.Weight); got != "-" {
			t.Errorf("nothing recorded: %s", got)
		}
	}
}
