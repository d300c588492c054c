package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report/export"
	"spmoe/launcher/report/page"
)

// A run leaves metrics, events for TensorBoard and a report, and what else it was asked for. The
// report is there while the run goes on, and loads itself again.
func TestRunFolder(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	report := filepath.Join("run", page.File)
	loadsAgain := func() bool {
		text, _ := os.ReadFile(report)
		return strings.Contains(string(text), `"reload":`)
	}
	seen := false
	waits := &watcher{[]string{"step: 2 "}, func() { seen = within(loadsAgain) }} // the run waits too
	got := launchTo(t.Context(), waits, tiny(data, "-np", "2", "--out", "run", "--report", "--profile")...)
	if got.code != cli.ExitOK || !seen || loadsAgain() || !strings.Contains(got.out, "profile of a step: mean of ") {
		t.Errorf("exit code %d: %s\n%s", got.code, got.errOut, got.out)
	}
	there := func(want bool, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if info, err := os.Stat(path); (err == nil && info.Size() > 0) != want {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	there(true, "run/config.toml", filepath.Join("run", record.File), report)
	there(false, filepath.Join("run", record.EventsFile))
	events, err := filepath.Glob(filepath.Join("run", export.TensorBoardFolder, "events.out.tfevents.*"))
	if err != nil || len(events) != 1 {
		t.Fatalf("events of TensorBoard: %q (%v)", events, err)
	}

	// The page can be written again, from what was recorded.
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
	for _, runs := range []string{"run", "run run", "run " + page.File} { // the last as with run* and an earlier page
		words := strings.Fields("inspect " + runs + " --html")
		if out := succeed(t, words...); !strings.Contains(out, page.File+"\n") {
			t.Errorf("%q says %q", words, out)
		}
	}
	there(true, report)
	succeed(t, "inspect", "run", "run", "--html")
	if page, err := os.ReadFile(page.File); err != nil || !strings.Contains(string(page), `{"title":"2 runs"`) {
		t.Errorf("the page of two runs: %.300s (%v)", page, err)
	}
	refuse(t, cli.ExitUsage, []string{"inspect", page.File, page.File, "--html"}, "none of 2 paths is the folder of a run")

	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
	succeed(t, tiny(data, "-np", "2", "--out", "run", "--steps", "14", "--resume", "--report=false")...)
	there(false, report)
}
