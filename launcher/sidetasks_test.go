package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report/export"
	"spmoe/launcher/report/page"
	"spmoe/launcher/trace"
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
	there(true, "config.toml", record.File, page.File, trace.File)
	there(false, record.EventsFile)
	events, err := filepath.Glob(filepath.Join("run", export.TensorBoardFolder, "events.out.tfevents.*"))
	if err != nil || len(events) != 1 {
		t.Fatalf("events of TensorBoard: %q (%v)", events, err)
	}
	before, err := os.ReadFile(events[0])
	if err != nil {
		t.Fatal(err)
	}

	rows, err := os.ReadFile(filepath.Join("run", export.CSVFile))
	if err != nil || strings.Count(string(rows), "\n") != 1+7 { // the names, and the evaluation before 6 steps
		t.Errorf("%s has %q (%v)", export.CSVFile, rows, err)
	}

	// All of it can be written again, from what was recorded.
	for _, name := range []string{page.File, export.TensorBoardFolder, export.CSVFile} {
		if err := os.RemoveAll(filepath.Join("run", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"report", "run"}, {"report", "run", "run"}} {
		if out := succeed(t, args...); strings.Count(out, filepath.Join("run", page.File)+"\n") != len(args)-1 {
			t.Errorf("%q says %q", args, out)
		}
	}
	there(true, page.File)
	if out := succeed(t, "report", "run", page.File); !strings.HasSuffix(out, page.File+"\n") { // as with run* and an earlier page
		t.Errorf("with the page of an earlier call: %q", out)
	}
	refuse(t, cli.ExitUsage, []string{"report", page.File, page.File}, "none of 2 paths is the folder of a run")
	succeed(t, "report", "run", "run", "--out", "both.html")
	if page, err := os.ReadFile("both.html"); err != nil || !strings.Contains(string(page), `{"title":"2 runs"`) {
		t.Errorf("the page of two runs: %.300s (%v)", page, err)
	}
	again, err := filepath.Glob(filepath.Join("run", export.TensorBoardFolder, "events.out.tfevents.*"))
	if err != nil || len(again) != 1 {
		t.Fatalf("events of TensorBoard: %q (%v)", again, err)
	}
	if after, err := os.ReadFile(again[0]); err != nil || string(after) != string(before) {
		t.Errorf("the events differ (%v)", err)
	}
	if after, err := os.ReadFile(filepath.Join("run", export.CSVFile)); err != nil || string(after) != string(rows) {
		t.Errorf("%s differs (%v)", export.CSVFile, err)
	}

	// Each command that the report shows works.
	html, err := os.ReadFile(filepath.Join("run", page.File))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`"text":"launcher ([^"]*)","class":"mono"`).FindAllStringSubmatch(string(html), -1)
	if len(lines) != 4 || !strings.Contains(string(html), `{"text":"step-00000006","link":"step-00000006/"}`) {
		t.Errorf("the report has the commands %q", lines)
	}
	for _, line := range lines {
		text := strings.NewReplacer("'func '", "func", "FILE", filepath.Join(data, "0.txt")).Replace(line[1])
		if got := launch(strings.Fields(text)...); got.code != cli.ExitOK {
			t.Errorf("%q: exit code %d: %s", line[1], got.code, got.errOut)
		}
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
		`--trace is "steps=5..7", but the run has 6 steps`:   {"--trace", "steps=5..7"},
		`--silence and --restarts are about rank processes`:  {"--restarts", "9"},
		`which can be replaced: add --ranks process`:         {"--silence", "9s"},
		`--trace is "5": give steps=5..7`:                    {"--trace", "5"},
		`--trace is "steps=0..2"`:                            {"--trace", "steps=0..2"},
		`--trace is "steps=3..2"`:                            {"--trace", "steps=3..2"},
		`--trace is "steps=x"`:                               {"--trace", "steps=x"},
		`--http: "0.0.0.0:0" is not this machine's own`:      {"--http", "0.0.0.0:0"},
		`--http: "6006" is no address: give one such as 127`: {"--http", "6006"},
		`--http-pprof and --http-stay need --http`:           {"--http-pprof"},
		`and --http-stay need --http: add --http ADDR`:       {"--http-stay"},
	} {
		refuse(t, cli.ExitUsage, tiny(data, append(args, "--out", "run")...), want)
	}
	refuse(t, cli.ExitUsage, []string{"report", "none"}, "none", "give the folder of a run")
	refuse(t, cli.ExitUsage, []string{"report"}, "no run with a checkpoint in runs")
	if left := files(t, "."); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// With --http-stay the page outlives its run, as its report, until Ctrl-C. By then the folder of
// the run is free.
func TestPageStays(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	settings := tiny(data, "--out", "run", "--sample-every", "2", "--sample-tokens", "3")
	var got string
	code := run(ctx, append(settings, "--http", "127.0.0.1:0", "--http-stay"), io.Discard, writerFunc(func(line []byte) {
		if m := regexp.MustCompile(`stays at (http://\S+)`).FindSubmatch(line); m != nil {
			defer stop()
			response, err := http.Get(string(m[1]))
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			page, err := io.ReadAll(response.Body)
			if got = string(page); err != nil {
				t.Error(err)
			}
			if again := launch(settings...); again.code != cli.ExitOK {
				t.Errorf("the folder of the run is not free: %s", again.errOut)
			}
		}
	}))
	if code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{`"text":"done"`, `"summary":"after step 4"`, `"summary":"after step 2"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q: %.300s", want, got)
		}
	}
}
