package convergence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/moe"
)

// twoLooks is a design whose first look is after two seeds, with a wide margin.
func twoLooks(seeds int) design.Design {
	return design.Design{Margin: 0.1, Looks: []design.Look{{Seeds: 2, Equivalence: 0.04, Difference: 0.02}, {Seeds: seeds, Equivalence: 0.03, Difference: 0.02}}}
}

// An arm that a look decides gets no more seeds. The others go on, with the baseline. The plan has
// been written before, and what an earlier command has trained leads to the same looks.
func TestLooks(t *testing.T) {
	t.Parallel()
	c := tiny(t, text(t), 6, "bf16,bf16+standard,mxfp8")
	c.Design, c.Config.Optimizer.LR = twoLooks(3), 3e-3
	c.Disturb = func(recipe string) func(moe.Quantized) {
		return map[string]func(moe.Quantized){"mxfp8": scalesOffByOne}[recipe]
	}
	// Two runs of the same bits are equivalent within any margin, and no difference is ever shown.
	c.Design.Margin, c.Design.Looks[0].Difference, c.Design.Looks[1].Difference = 1e-6, 1e-12, 1e-12
	var console strings.Builder
	c.Console = &console
	var made history
	c.Start = made.start
	r := finish(t, c)
	if want := []string{"bf16/seed-1", "bf16+standard/seed-1", "mxfp8/seed-1", "bf16/seed-2", "bf16+standard/seed-2", "mxfp8/seed-2",
		"bf16/seed-3", "mxfp8/seed-3"}; !slices.Equal(made, want) {
		t.Fatalf("runs %q, want %q", made, want)
	}
	if len(r.Arms[1].Runs) != 2 || r.Arms[1].Verdict != Equivalent || r.Arms[2].Verdict != Undecided {
		t.Errorf("%d runs, %s; %s", len(r.Arms[1].Runs), r.Arms[1].Verdict, r.Arms[2].Verdict)
	}
	if !strings.Contains(console.String(), "look 1 of 2, after 2 seeds: bf16+standard equivalent, within 0.00 %") {
		t.Errorf("console:\n%s", console.String())
	}
	plan, err := os.ReadFile(filepath.Join(c.Out, planFile))
	if err != nil || r.Plan != fmt.Sprintf("%x", sha256.Sum256(plan)) {
		t.Errorf("plan %s: %v", r.Plan, err)
	}
	// A look that decides all arms is the last one.
	decided := *c
	decided.Recipes, decided.Out = c.Recipes[:2], filepath.Join(t.TempDir(), "decided")
	plan, err = decided.plan()
	err = errors.Join(err, os.CopyFS(decided.Out, os.DirFS(c.Out)), os.WriteFile(filepath.Join(decided.Out, planFile), plan, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	before := len(made)
	early, err := decided.Run(t.Context())
	if err != nil || len(early.Setup.Seeds) != 2 || early.Verdict() != Equivalent || len(made) != before {
		t.Errorf("decided at the first look: %+v, %v, %q", early.Arms, err, made[before:])
	}
	again := *c
	again.Config.Threads = 1 // of no effect on the plan
	if second := finish(t, &again); essence(t, second) != essence(t, r) || len(made) != before {
		t.Errorf("again: %q", made[before:])
	}
}

func TestCourse(t *testing.T) {
	run := func(factor float64) Run {
		log := new(record.Log)
		for step := 1; step <= 16; step++ {
			log.Steps = append(log.Steps, record.Step{Step: step, Loss: record.Number((1 + factor*float64((step-1)/2)) / float64(step))})
		}
		return Run{Log: log}
	}
	got := course([]Run{run(0.01), run(0.03)}, []Run{run(0), run(0)})
	if len(got) != windows {
		t.Fatalf("%d windows", len(got))
	}
	for i, w := range got {
		if w.From != 2*i+1 || w.To != 2*i+2 || math.Abs(w.Mean-0.02*float64(i)) > 1e-12 || !(w.CI95[0] <= w.Mean && w.Mean <= w.CI95[1]) {
			t.Errorf("window %d: %+v", i, w)
		}
	}
	bad := run(0)
	bad.Log.Steps[4].Loss = record.Number(math.NaN())
	if got := course([]Run{bad}, []Run{run(0)}); len(got) != windows-1 {
		t.Errorf("a loss that is none: %+v", got)
	}
	if got := course([]Run{{Log: new(record.Log)}}, []Run{run(0)}); got != nil {
		t.Errorf("no steps: %+v", got)
	}
}

func TestTextError(t *testing.T) {
	run := func(passes ...record.Number) Run { return Run{Log: &record.Log{Done: &record.Done{Passes: passes}}} }
	// Differences of the parts' means are 0.01, 0.03 and 0.05: their standard error is 0.02/√3.
	runs, baseline := []Run{run(2.02, 2.04, 2.05), run(2.00, 2.02, 2.05)}, []Run{run(2, 2, 2), run(2, 2, 2)}
	if got, want := textError(runs, baseline), 0.02/math.Sqrt(3)/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, want %v", got, want)
	}
	for name, c := range map[string][2][]Run{
		"none": {{run(), run()}, {run(), run()}}, "one": {{run(2)}, {run(2)}}, "no log": {{{}}, {{}}}, "different": {{run(2, 3), run(2, 3, 4)}, {run(2, 3), run(2, 3)}},
	} {
		if got := textError(c[0], c[1]); got != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	r := Result{Margin: 0.005}
	for e, want := range map[float64]int{0.0009: 1, 0.0011: 2, 0: 0} {
		if got := r.text(Arm{TextError: e}); len(got) != want {
			t.Errorf("error %v: %q", e, got)
		}
	}
}

// The scatter that is built in is that of the published comparisons.
func TestMeasuredScatter(t *testing.T) {
	for folder, rate := range map[string]float64{"debug-20-seeds": 1e-3, "debug": 3e-3} {
		cfg, err := Default("debug", 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Optimizer.LR = rate
		got, ok := MeasuredScatter(cfg)
		want, err := ReadScatter("../../bench/results/convergence/" + folder)
		if err != nil || !ok || math.Abs(got.Train-want.Train) > 1e-5 || math.Abs(got.HeldOut-want.HeldOut) > 1e-5 ||
			math.Abs(got.Correlation-want.Correlation) > 0.01 || got.Pairs != want.Pairs {
			t.Errorf("%s: %+v, want %+v; %v", folder, got, want, err)
		}
	}
	cfg, err := Quick("debug", 0)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := MeasuredScatter(cfg); ok {
		t.Errorf("of a model that was not measured: %+v", s)
	}
	if _, err := ReadScatter("../../bench/results/convergence/small"); err == nil || !strings.Contains(err.Error(), "two seeds") {
		t.Errorf("of one seed: %v", err)
	}
	if _, err := ReadScatter(t.TempDir()); err == nil {
		t.Error("of no comparison")
	}
}
