package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/internal/testing/svgtext"
	"spmoe/launcher/record"
	"spmoe/launcher/report/overview"
)

// write writes the folder of a run of some steps.
func write(t *testing.T, folder string, steps int, tokens int64, config string) overview.Run {
	t.Helper()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	w, err := record.Open(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(record.Start{CPU: "a CPU", Tier: "avx2", Cores: 2, Ranks: 4, Tokens: tokens, FLOPs: 2e6, Peak: 1e10})
	w.Eval(record.Eval{Loss: 6, Sequences: 1})
	for step := 1; step <= steps; step++ {
		w.Step(record.Step{Step: step, Loss: record.Number(5 - float64(step)/100), GradNorm: 1, Seconds: 30})
		if step%10 == 0 {
			w.Eval(record.Eval{Step: step, Loss: record.Number(4.5 - float64(step)/100), Sequences: 1})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.toml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := overview.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pageOf(t *testing.T, dir string, list ...overview.Run) string {
	t.Helper()
	path := filepath.Join(dir, File)
	if err := Write(path, list); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A page has the results of each run, the settings that differ, and curves with values and a
// logarithmic axis. It needs no network and no script.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	a := write(t, filepath.Join(dir, "a"), 40, 1000, "out = 'a'\nbatch = 16\nsteps = 40\n[optimizer]\nlr = 3e-3\n")
	b := write(t, filepath.Join(dir, "b<script>"), 30, 1000, "out = 'b'\nbatch = 16\nsteps = 60\n[optimizer]\nlr = 1e-3\nnesterov = true\n")
	if err := os.WriteFile(filepath.Join(b.Folder, overview.File), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, dir, a, b)
	for _, want := range []string{
		`<b>a</b><small>step 40 of 40</small>`, `<a href="./b%3cscript%3e/report.html">b&lt;script&gt;</a><small>step 30 of 60</small><small>4 ranks on a CPU, 2 cores, avx2</small>`,
		"<td>4.1000</td><td>4.1000</td><td>4.6450</td><td>40</td><td>40,000</td><td>20m00s</td><td>33</td><td>0.7%</td>",
		`<th scope="row">optimizer.lr</th><td>0.003</td><td>0.001</td>`, `<th scope="row">optimizer.nesterov</th><td>–</td><td>true</td>`, `<th scope="row">steps</th>`,
		">logarithmic</label>", "● </tspan>a 4.1</tspan>", ">step 40</tspan>", ">minutes of training 20</tspan>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if at := regexp.MustCompile(`<script|\bNaN\b|%!|ZgotmplZ|<th scope="row">(?:out|batch)<|(?:src|href)="(?:http|//)`).FindString(page); at != "" {
		t.Errorf("the page has %q", at)
	}
	for class, column := range map[string]float64{"narrow": 420 - 2*14, "wide": 980 - 2*24} {
		if small, measured := svgtext.Small(page, class, column, 13); measured < 50 || len(small) > 0 {
			t.Errorf("of %d texts on a %s page, these are too small or too long:\n%s", measured, class, strings.Join(small, "\n"))
		}
	}
}

// Runs with batches of different sizes are drawn over tokens, and runs whose folders have equal
// names are named by their paths.
func TestDifferentRuns(t *testing.T) {
	dir := t.TempDir()
	page := pageOf(t, dir, write(t, filepath.Join(dir, "x", "run"), 20, 1000, ""), write(t, filepath.Join(dir, "y", "run"), 10, 4_000_000, ""))
	for _, want := range []string{">tokens (millions)<", ">tokens (millions) 40</tspan>", "x/run</b>", "y/run</b>", "The runs have the same settings"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// Many runs have different looks, and too many are refused. A run without a step takes part.
func TestManyRuns(t *testing.T) {
	looks := map[string]bool{}
	for _, s := range styles(make([]string, 21)) {
		looks[fmt.Sprint(s.Shade, s.Line.Dashes)] = true
	}
	if len(looks) != 21 {
		t.Errorf("21 runs have %d looks", len(looks))
	}
	dir := t.TempDir()
	empty := overview.Run{Folder: filepath.Join(dir, "empty")}
	if page := pageOf(t, dir, empty, empty); !strings.Contains(page, "<small>no step yet</small>") || strings.Contains(page, "<figure") {
		t.Errorf("a run without a step: %s", page)
	}
	if err := Write(filepath.Join(dir, File), make([]overview.Run, Most+1)); err == nil || !strings.Contains(err.Error(), "65 runs are too many for one page: give at most 64") {
		t.Errorf("too many runs: %v", err)
	}
}
