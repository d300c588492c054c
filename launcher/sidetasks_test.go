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
	"spmoe/launcher/trainer/observe"
)

// A run leaves metrics, events for TensorBoard and a report; a trace if it was asked for one.
func TestRunFolder(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "-np", "2", "--out", "run", "--report", "--trace", "steps=2..3")...)
	there := func(want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := os.Stat(filepath.Join("run", name)); (err == nil) != want {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	there(true, "config.toml", record.File, page.File, observe.TraceFile)
	there(false, record.EventsFile)
	events, err := filepath.Glob(filepath.Join("run", export.TensorBoardFolder, "events.out.tfevents.*"))
	if err != nil || len(events) != 1 {
		t.Fatalf("events of TensorBoard: %q (%v)", events, err)
	}

	// The page can be written again, from what was recorded.
	if err := os.Remove(filepath.Join("run", page.File)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inspect", "run", "--html"}, {"inspect", "run", "run", "--html"}} {
		if out := succeed(t, args...); strings.Count(out, filepath.Join("run", page.File)+"\n") != len(args)-2 {
			t.Errorf("%q says %q", args, out)
		}
	}
	there(true, page.File)
	if out := succeed(t, "inspect", "run", page.File, "--html"); !strings.HasSuffix(out, page.File+"\n") { // as with run* and an earlier page
		t.Errorf("with the page of an earlier call: %q", out)
	}
	refuse(t, cli.ExitUsage, []string{"inspect", page.File, page.File, "--html"}, "none of 2 paths is the folder of a run")
	succeed(t, "inspect", "run", "run", "--html", "--out", "both.html")
	if page, err := os.ReadFile("both.html"); err != nil || !strings.Contains(string(page), `{"title":"2 runs"`) {
		t.Errorf("the page of two runs: %.300s (%v)", page, err)
	}

	if err := os.Remove(filepath.Join("run", page.File)); err != nil {
		t.Fatal(err)
	}
	succeed(t, tiny(data, "-np", "2", "--out", "run", "--steps", "14", "--resume", "--report=false")...)
	there(false, page.File)
}

func TestBesideFlags(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		`--trace is "steps=5..7", but the run has 6 steps`:  {"--trace", "steps=5..7"},
		`--silence and --restarts are about rank processes`: {"--restarts", "9"},
		`which can be replaced: add --ranks process`:        {"--silence", "9s"},
		`--trace is "5": give steps=5..7`:                   {"--trace", "5"},
		`--trace is "steps=0..2"`:                           {"--trace", "steps=0..2"},
		`--trace is "steps=3..2"`:                           {"--trace", "steps=3..2"},
		`--trace is "steps=x"`:                              {"--trace", "steps=x"},
	} {
		refuse(t, cli.ExitUsage, tiny(data, append(args, "--out", "run")...), want)
	}
	refuse(t, cli.ExitUsage, []string{"train", "--http", "127.0.0.1:0"}, "there is no flag --http: OUT/report.html is written every 30 s")
	refuse(t, cli.ExitUsage, []string{"inspect", "none", "--html"}, "none", "give the folder of a run")
	refuse(t, cli.ExitUsage, []string{"inspect", "--html"}, "no run with a checkpoint in runs")
	refuse(t, cli.ExitUsage, []string{"inspect", "debug", "--out", "x"}, "add --html")
	refuse(t, cli.ExitUsage, []string{"report", "run"}, "launcher inspect RUN... --html")
	if left := files(t, "."); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
