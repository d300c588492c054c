package convergence

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
)

// made is a comparison of logs that are made up: runs of 40 steps whose training and validation
// losses fall to the given ones.
func made(t *testing.T, precision string, seeds int, final func(arm string, seed uint64) (train, heldOut float64)) Result {
	t.Helper()
	c := tiny(t, "unread", 40, precision)
	c.Design = design.Fixed(0.005, seeds)
	var logs []*record.Log
	tasks := c.tasks()
	for _, task := range tasks {
		logs = append(logs, madeLog(final(task.recipe.Name, task.seed)))
	}
	r, err := c.compare(tasks, logs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func madeLog(train, heldOut float64) *record.Log {
	log := &record.Log{Done: &record.Done{Step: 40, HeldOut: record.Number(heldOut)}}
	for step := 1; step <= 40; step++ {
		s := record.Step{Step: step, Loss: 6, Seconds: 0.5}
		if step > 30 { // the tail: its mean is the loss
			s.Loss = record.Number(train) + record.Number(step%2)*0.2 - 0.1
		}
		if step < 4 {
			s.Seconds = 100
		}
		log.Steps = append(log.Steps, s)
	}
	return log
}

// Both losses count, each by itself.
func TestVerdicts(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	base := []float64{2, 2.1, 2.2}
	near, higher, lower, scattered := []float64{2.001, 2.102, 2.199}, []float64{2.02, 2.1205, 2.2225}, []float64{1.98, 2.0785, 2.178}, []float64{2.02, 2.08, 2.2}
	for name, c := range map[string]struct {
		baseline, train, heldOut []float64 // by seed
		verdict                  string
		says                     []string
	}{
		"near":                    {base, near, near, Equivalent, []string{"no difference is shown", "smallest margin to pass is 0.15 % (training), 0.15 % (validation)"}},
		"higher by a percent":     {base, higher, higher, Different, []string{"training loss is higher: +1.00", "validation loss is higher: +1.00"}},
		"lower by a percent":      {base, lower, lower, Different, []string{"training loss is lower: -1.008 %, 95 % interval -1.057 to -0.959"}},
		"validation loss higher":  {base, near, higher, Different, []string{"validation loss is higher"}},
		"training loss higher":    {base, higher, near, Different, []string{"training loss is higher"}},
		"validation loss lower":   {base, near, lower, Different, []string{"validation loss is lower"}},
		"scattered":               {base, scattered, scattered, Undecided, []string{"no difference is shown", "new seeds have a chance of 80 %"}},
		"validation scattered":    {base, near, scattered, Undecided, nil},
		"training scattered":      {base, scattered, near, Undecided, nil},
		"one seed":                {base[:1], base[:1], base[:1], Undecided, []string{"one seed says nothing about others"}},
		"no number":               {base, []float64{2, nan, 2.2}, near, Different, []string{"mxfp8 has diverged with seed 2"}},
		"no number, validation":   {base, near, []float64{2, 2.1, nan}, Different, []string{"mxfp8 has diverged with seed 3"}},
		"one seed, no number":     {base[:1], []float64{nan}, []float64{nan}, Different, nil},
		"infinite":                {base[:2], []float64{2, inf}, near[:2], Different, nil},
		"have learned nothing":    {[]float64{5.545, 5.545}, []float64{5.545, 5.545}, []float64{5.545, 5.545}, Undecided, []string{"bf16 has diverged with seed 1"}}, // ln 256 is 5.5452
		"only the baseline fails": {[]float64{nan, nan}, near[:2], near[:2], Undecided, []string{"bf16 has diverged with seed 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := made(t, "bf16,mxfp8", len(c.baseline), func(arm string, seed uint64) (train, heldOut float64) {
				if arm == "bf16" {
					return c.baseline[seed-1], c.baseline[seed-1]
				}
				return c.train[seed-1], c.heldOut[seed-1]
			})
			if r.Arms[0].Verdict != Baseline || r.Arms[1].Verdict != c.verdict || r.Verdict() != c.verdict {
				t.Errorf("%s and %s, want %s", r.Arms[0].Verdict, r.Arms[1].Verdict, c.verdict)
			}
			// Numbers that are none reach neither the file nor the tables.
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			tables := summary(t, r)
			for _, word := range []string{"NaN", "Inf"} {
				if strings.Contains(string(text)+tables, word) {
					t.Errorf("%s in %s\n%s", word, text, tables)
				}
			}
			for _, want := range append(c.says, strings.ToUpper(c.verdict)) {
				if !strings.Contains(tables, want) {
					t.Errorf("no %q in\n%s", want, tables)
				}
			}
		})
	}
}

// summary returns the tables and statements of a result, whose lines fit 80 columns.
func summary(t *testing.T, r Result) string {
	t.Helper()
	var tables strings.Builder
	WriteSummary(&tables, r)
	for line := range strings.Lines(tables.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return tables.String()
}

func TestResult(t *testing.T) {
	r := made(t, "bf16,mxfp8,mxfp8-wgrad-bf16+e5m2+floor+wire", 3, func(_ string, seed uint64) (train, heldOut float64) {
		loss := 2 + 0.1*float64(seed)
		return loss, loss
	})
	if n := len(r.Arms); n != 3 || len(r.Arms[2].Runs) != 3 {
		t.Fatalf("%d arms: %+v", n, r.Arms)
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
	tables := summary(t, r)
	for _, want := range []string{"mxfp8-wgrad-bf16+e5m2+floor+wire\n", "3 seeds: EQUIVALENT", "over its 3 seeds:\n  4.55 %"} {
		if !strings.Contains(tables, want) {
			t.Errorf("no %q in\n%s", want, tables)
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
	base, yes, no, unknown := Arm{Verdict: Baseline}, Arm{Verdict: Equivalent}, Arm{Verdict: Different}, Arm{Verdict: Undecided}
	for _, c := range []struct {
		arms []Arm
		want string
	}{
		{nil, ""}, {[]Arm{base}, ""}, {[]Arm{base, yes, yes}, Equivalent}, {[]Arm{base, unknown, yes}, Undecided}, {[]Arm{base, yes, unknown}, Undecided},
		{[]Arm{base, yes, unknown, no}, Different}, {[]Arm{base, yes, {Verdict: Different, Ablation: true}}, Equivalent},
	} {
		if got := (Result{Arms: c.arms}).Verdict(); got != c.want {
			t.Errorf("%v: %q, want %q", c.arms, got, c.want)
		}
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
