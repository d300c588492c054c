package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTrainProfile: --profile prints the table after the last step, in a run that makes a warm one.
func TestTrainProfile(t *testing.T) {
	data := text(t)
	for steps, want := range map[string]string{"2": "profile of a step: mean of 1 warm step and 2 ranks", "1": "profile: nothing was measured"} {
		out := succeed(t, tiny(data, "-np", "2", "--steps", steps, "--profile", "--out", filepath.Join(t.TempDir(), "run"))...)
		if !strings.Contains(out, want) {
			t.Errorf("%s steps: no %q in\n%s", steps, want, out)
		}
	}
	if out := succeed(t, tiny(data, "--steps", "2", "--out", filepath.Join(t.TempDir(), "run"))...); strings.Contains(out, "profile") {
		t.Errorf("without the flag:\n%s", out)
	}
}
