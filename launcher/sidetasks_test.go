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
	if out := succeed(t, "inspect", "run", "--html"); out != report+"\n" {
		t.Errorf("it says %q", out)
	}
	there(true, report)
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
	succeed(t, tiny(data, "-np", "2", "--out", "run", "--steps", "14", "--resume", "--report=false")...)
	there(false, report)
}
