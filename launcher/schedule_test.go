package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
)

// A schedule is printed and written, and what is written is described alike.
func TestSchedule(t *testing.T) {
	for _, name := range pipeline.Names() {
		lists := filepath.Join(t.TempDir(), "lists.json")
		got := launch("schedule", "--name", name, "--pp", "4", "--microbatches", "8", "--json", lists)
		if got.code != cli.ExitOK || got.errOut != "" {
			t.Fatalf("%s: exit code %d: %s", name, got.code, got.errOut)
		}
		for _, want := range []string{name + ": 4 ranks", "0F7", "bubble", "published: idle (p-1)"} {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got.out)
			}
		}
		if again := launch("schedule", "--file", lists); again.out != got.out {
			t.Errorf("%s is described as\n%swant\n%s", lists, again.out, got.out)
		}
	}
}

// What cannot be made or executed is an error, which says what is wrong.
func TestScheduleRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"schedules": {"mine": {"0": ["0F0", "0B0"], "1": ["1B0", "1F0"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--name GPipe":               "unknown schedule",
		"--pp 0":                     "0 pipeline ranks",
		"--costs 1,2":                "give three or four times",
		"--costs 1,0,1":              `"0" is not a time`,
		"--file " + bad:              "1B0, action 0 of rank 1",
		"--file " + bad + " --pp 2":  "--file has lists, and --pp makes others",
		"--file " + bad + "/missing": "bad.json/missing",
	} {
		got := launch(append([]string{"schedule"}, strings.Fields(args)...)...)
		if got.code == cli.ExitOK || !strings.Contains(got.errOut, want) || got.out != "" {
			t.Errorf("%s: exit code %d, %s%s", args, got.code, got.out, got.errOut)
		}
	}
}
