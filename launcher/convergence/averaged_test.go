package convergence

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
)

// The averaged weights have a verdict of their own, and no effect on that of the losses.
func TestAveragedOutcome(t *testing.T) {
	c := &Comparison{Design: design.Fixed(0.005, 4)}
	c.Config.EMA = 0.99
	runs := func(shift float64) (all []Run) {
		for i := range 4 {
			scatter := 1e-4 * float64(i)
			all = append(all, Run{Train: record.Number(2 + scatter), HeldOut: record.Number(3 + scatter), Averaged: record.Number((3 + scatter*scatter) * (1 + shift)), Log: &record.Log{}})
		}
		return all
	}
	judge := func(arm []Run) Arm {
		a, baseline := Arm{Name: "mxfp8", Runs: arm}, Arm{Name: "bf16", Runs: runs(0)}
		a.judge(baseline, c.Design)
		a.Averaged = c.judgeAverage(a, baseline)
		return a
	}
	for shift, want := range map[float64]string{0.001: Equivalent, -0.02: Different} {
		a := judge(runs(shift))
		if a.Verdict != Equivalent || a.Averaged.Verdict != want || math.Abs(a.Averaged.Difference.Mean-shift) > 1e-12 {
			t.Errorf("shift %g: %s, averaged %+v", shift, a.Verdict, a.Averaged)
		}
		if text := strings.Join(a.secondary(), "\n"); !strings.Contains(text, strings.ToUpper(want)) || !strings.Contains(text, "95 % interval") {
			t.Errorf("shift %g: %s", shift, text)
		}
	}
	lost := runs(0)
	lost[1].Averaged = record.Number(math.NaN())
	if a := judge(lost); a.Verdict != Equivalent || a.Averaged.Verdict != Undecided || a.Averaged.Difference != nil {
		t.Errorf("a loss that is not finite: %s, averaged %+v", a.Verdict, a.Averaged)
	}
	lost[1].Diverged = true
	if a := judge(lost); a.Averaged.Verdict != Different {
		t.Errorf("a run that diverged: %+v", a.Averaged)
	}
	if c.Config.EMA = 0; c.judgeAverage(judge(runs(0)), Arm{}) != nil {
		t.Error("an outcome without averaged weights")
	}
}

// The plan names the second outcome before the first run, and a comparison cannot gain or lose it.
// The runs measure it.
func TestAveragedComparison(t *testing.T) {
	t.Parallel()
	c := tiny(t, text(t), 4, "bf16,mxfp8")
	c.Config.EMA, c.Design = 0.5, design.Fixed(0.005, 1)
	r := finish(t, c)
	plan, err := os.ReadFile(filepath.Join(c.Out, planFile))
	for _, want := range []string{"[second_outcome]", "averaged weights (decay 0.5 per step)", "the losses decide", "ema = 0.5"} {
		if err != nil || !strings.Contains(string(plan), want) {
			t.Errorf("%v: the plan lacks %q:\n%s", err, want, plan)
		}
	}
	for _, arm := range r.Arms {
		for _, run := range arm.Runs {
			if !(run.Averaged > 1) || run.Averaged == run.HeldOut {
				t.Errorf("%s: loss %g, of averaged weights %g", arm.Name, run.HeldOut, run.Averaged)
			}
		}
	}
	var out strings.Builder
	WriteSummary(&out, r)
	if r.Arms[1].Averaged == nil || strings.Count(out.String(), " averaged ") != 2 {
		t.Errorf("%+v\n%s", r.Arms[1].Averaged, out.String())
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	c.Config.EMA = 0
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "ema") {
		t.Errorf("without --ema: %v", err)
	}
	plain := tiny(t, text(t), 4, "bf16,mxfp8")
	if text, err := plain.plan(); err != nil || strings.Contains(string(text), "second_outcome") || strings.Contains(string(text), "ema") {
		t.Errorf("%v: a plan without averaged weights:\n%s", err, text)
	}
}
