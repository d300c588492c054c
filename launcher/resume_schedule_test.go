package main

// Resumed runs whose schedules have another length.

import (
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// A run that is resumed after its end rises to the rate of a longer schedule and says so, or goes
// on with its last rate, as the message of the complete run proposes. One that makes
// the first steps of a schedule resumes as if it had not stopped.
func TestResumeSchedule(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	rates := func(out string) (all []float64) {
		for _, e := range jsonEvents(t, out, "step") {
			all = append(all, e.number("lr"))
		}
		return all
	}
	begin := func(more ...string) []float64 {
		more = append(more, "--set", "optimizer.decay_frac=0.5", "--set", "optimizer.min_factor=0", "--log-format", "json")
		return rates(succeed(t, tiny(data, more...)...))
	}
	whole := begin("--steps", "6", "--out", "run")
	again := succeed(t, tiny(data, "--out", "run", "--set", "optimizer.decay_frac=0.5", "--set", "optimizer.min_factor=0")...)
	if want := "launcher train --resume --out run --steps N --set schedule_steps=6, with N above 6"; !strings.Contains(again, want) {
		t.Errorf("%q, want %q", again, want)
	}
	if err := os.CopyFS("anew", os.DirFS("run")); err != nil {
		t.Fatal(err)
	}

	out := succeed(t, strings.Fields("train --resume --out run --steps 12 --set schedule_steps=6 --report=false --log-format json")...)
	for _, rate := range rates(out) {
		if rate != whole[5] {
			t.Errorf("the proposal goes on with rates %g, after %g", rates(out), whole)
			break
		}
	}
	if n := len(rates(out)); n != 6 || strings.Contains(out, "rises") {
		t.Errorf("%d steps: %s", n, out)
	}
	out = succeed(t, "train", "--resume", "--out", "anew", "--steps", "12", "--report=false")
	const note = "NOTE: the learning rate rises from 1.00e-03 in step 6 to 3.00e-03 in step 7: " +
		"its schedule was planned for 6 steps: add --set schedule_steps=6 to keep to it\n"
	if !strings.Contains(out, note) {
		t.Errorf("%s\nwant %q", out, note)
	}

	part := begin("--steps", "2", "--set", "schedule_steps=6", "--out", "part")
	rest := succeed(t, "train", "--resume", "--out", "part", "--steps", "6", "--report=false", "--log-format", "json")
	if got := append(part, rates(rest)...); !slices.Equal(got, whole) || strings.Contains(rest, "rises") {
		t.Errorf("in two parts %g, in one %g: %s", got, whole, rest)
	}
	shorter := []string{"train", "--resume", "--out", "part", "--steps", "8", "--set", "schedule_steps=4"}
	refuse(t, cli.ExitUsage, shorter, "schedule_steps: 6 -> 4", "--allow-changes")
}
