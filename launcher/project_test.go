package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/launcher/cli"
)

// few are flags that keep intervals cheap.
var few = []string{"--samples", "50"}

func TestProject(t *testing.T) {
	out := succeed(t, append([]string{"project"}, few...)...)
	for _, want := range []string{
		"SHA-256 " + projection.ParameterHash(), "as_run", "clean", "learned_twice", "simple", "over all readings, by their weights: ", "651 tokens/s per GPU, 80 % interval", "MFU 9.9 % and HFU 13.2 %", "201.3 s per step",
		"t_A    all-to-all", "t_R    residual", "calibrated", "memory ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !regexp.MustCompile(`(?m)^  as_run +851 +-1\.0% +\d+-\d+ \(±\d+ %\) +902 +-1\.7%`).MatchString(out) {
		t.Errorf("the headline is not there:\n%s", out)
	}
	explained := succeed(t, append([]string{"project", "explain", "--stack", "titan_deepep", "--duplicate", "2"}, few...)...)
	for _, want := range []string{"source: ", "d·I·passes·F_G / R = 2 ·", "58 layers · 6 all-to-alls", "one parameter at a time", "duplicate "} {
		if !strings.Contains(explained, want) {
			t.Errorf("no %q in\n%s", want, explained)
		}
	}
	var b struct {
		Budget struct {
			Tokens float64
			Terms  []struct{ Symbol, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(succeed(t, append([]string{"project", "--json", "--gpu", "gb200", "--ep", "64"}, few...)...)), &b); err != nil {
		t.Fatal(err)
	}
	if b.Budget.Tokens < 100 || len(b.Budget.Terms) < 8 || b.Budget.Terms[0].Symbol != "t_G" || b.Budget.Terms[0].Kind == "" {
		t.Errorf("%+v", b)
	}
}

func TestProjectRefused(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "gpu.json"), `{"name":"X1","kernels":"b200"}`)
	broken := write(t, filepath.Join(dir, "ratios.json"), `{"schema":1}`)
	for want, args := range map[string][]string{
		"use one of B200":                      {"project", "--gpu", "tpu"},
		"the nearest that does and fits":       {"project", "--ep", "48"},
		"a GPU (weights":                       {"project", "--gpu", "h100"},
		"field bf16_tflops is missing":         {"project", "--hardware", bad},
		"model has 0 experts":                  {"project", "--ratios", broken},
		"give --ratios":                        {"project", "--routing", "measured"},
		"--dedup is \"maybe\"":                 {"project", "--dedup", "maybe"},
		"--samples is 1":                       {"project", "--samples", "1"},
		"hidden share":                         {"project", "--overlap", "1.5"},
		"validate, blind, sweep, hosts, or no": {"project", "everything"},
		"did you mean validate":                {"project", "validat"},
		"did you mean mxfp8-experts":           {"project", "--precision", "mxfp8-expert"},
		"--layouts is -1":                      {"project", "sweep", "--layouts", "-1"},
		"--project: 671B on 256 GPUs: GPU":     tiny("none", "--project", "tpu"),
		"use one of kernels, exchange":         {"bench", "everything"},
	} {
		refuse(t, cli.ExitUsage, args, want)
	}
}

// A hardware file in place of a GPU's name.
func TestProjectHardware(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "bench", "projection", "data", "hardware", "b200.json"))
	if err != nil {
		t.Fatal(err)
	}
	faster := strings.Replace(string(text), `"value": 50,`, `"value": 100,`, 1)
	out := succeed(t, append([]string{"project", "--hardware", write(t, filepath.Join(t.TempDir(), "x.json"), strings.Replace(faster, `"name": "B200"`, `"name": "X200"`, 1))}, few...)...)
	if !strings.Contains(out, "671B on 256 X200") || strings.Contains(out, "t_R ") {
		t.Errorf("another GPU carries B200's residual, or is not named:\n%s", out)
	}
}

func TestProjectValidate(t *testing.T) {
	out := succeed(t, append([]string{"project", "validate"}, few...)...)
	for _, want := range []string{"H1, same framework", "H2, Megatron on Blackwell", "H3, Hopper", "H4, one node", "gb200-26.06", "not predicted:", "requirements:", "holds   0.0000 (limit 0) 671B: parameters", "fit: host_us of b200.json", "aim 0.08 missed", "anchored at its first row only: published over predicted at its last 4.85"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out, "MISSED"); n != 2 {
		t.Errorf("%d requirements are missed, want the ladder's first step and the ladder anchored once:\n%s", n, out)
	}
}

// Predictions of published runs are printed and written; a run that cannot be predicted is named.
func TestProjectBlind(t *testing.T) {
	dir := t.TempDir()
	const row = `{"id":"gb200-det-on","tier":"A","run":{"model":"671B","gpu":"GB200","gpus":256,"precision":"bf16","seq":4096,"batch":2048,"micro_batch":1,"mtp":true,"tp":1,"pp":4,"vp":4,"ep":64,"cp":1,"recompute":"mla_up_proj","dispatcher":"hybridep","routing":"uniform","deterministic":true}}`
	in, out := write(t, filepath.Join(dir, "in.json"), `{"rows":[`+row+`]}`), filepath.Join(dir, "out.json")
	if text := succeed(t, "project", "blind", "--in", in, "--out", out); !strings.Contains(text, "gb200-det-on") || !strings.Contains(text, projection.CodeHash()) {
		t.Errorf("%s", text)
	}
	var b projection.Blind
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Hash != projection.CodeHash() || len(b.Rows) != 1 || b.Rows[0].Tokens < 2000 || b.Rows[0].Low >= b.Rows[0].Tokens {
		t.Errorf("%s", text)
	}
	bad := write(t, filepath.Join(dir, "bad.json"), `{"rows":[`+strings.Replace(row, "671B", "672B", 1)+`]}`)
	refuse(t, cli.ExitUsage, []string{"project", "blind", "--in", bad, "--out", filepath.Join(dir, "none.json")}, `row 1, "gb200-det-on": model "672B"`)
	refuse(t, cli.ExitUsage, []string{"project", "blind", "--in", in}, "--in and --out are needed")
	if _, err := os.Stat(filepath.Join(dir, "none.json")); err == nil {
		t.Error("a file of refused runs is written")
	}
}

func TestProjectSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sweep")
	out := succeed(t, "project", "sweep", "--gpu", "gb200", "--stack", "megatron_overlap", "--precision", "mxfp8", "--seq", "4096", "--layouts", "3000", "--out", dir)
	if !strings.Contains(out, "3000 layouts of 256 gb200 are possible") {
		t.Errorf("%s", out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sweep.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 100 || lines[0] != "tp,pp,vp,ep,micro_batch,recompute,tokens_per_second_per_gpu,memory_gb,pareto" || strings.Count(lines[1], ",") != 8 || !strings.HasSuffix(lines[1], ",true") {
		t.Errorf("%d lines, %q, %q", len(lines), lines[0], lines[1])
	}
	if _, err := os.Stat(filepath.Join(dir, "sweep.html")); err != nil {
		t.Error(err)
	}
}

// The page and its files, from a run's own ratios and the benchmark's.
func TestProjectPage(t *testing.T) {
	dir := t.TempDir()
	bench := filepath.Join(dir, "bench.json")
	table := succeed(t, "-np", "2", "bench", "ratios", "--quick", "--json", bench, "--seq", "32", "--batch", "4",
		"--model.dim", "64", "--model.experts", "8", "--model.top-k", "2", "--model.expert-inter", "32")
	if !strings.Contains(table, "round_robin: bytes of a standard all-to-all") || strings.Contains(table, "WRONG") || !strings.Contains(table, "one-sided over standard exchange") {
		t.Errorf("%s", table)
	}
	run := filepath.Join(dir, "run")
	out := succeed(t, tiny(text(t), "-np", "2", "--project", "b200", "--plain", "--report", "--out", run)...)
	if !strings.Contains(out, "projected with this run's routing") || !strings.Contains(out, "its imbalance is an assumption here") {
		t.Errorf("%s", out)
	}
	if html, err := os.ReadFile(filepath.Join(run, "report.html")); err != nil || !strings.Contains(string(html), `{"name":"projected"`) {
		t.Errorf("the run's report has no projection: %v", err)
	}
	page := filepath.Join(dir, "page")
	out = succeed(t, append([]string{"project", "--routing", "measured", "--ratios", filepath.Join(run, ratios.Name) + "," + bench, "--stack", "titan_deepep", "--out", page}, few...)...)
	if !strings.Contains(out, "from this machine's measured ratios of times alone: 651 -> ") || !strings.Contains(out, "CPU fact") {
		t.Errorf("%s", out)
	}
	html, err := os.ReadFile(filepath.Join(page, "projection.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":"waterfall"`, "80 % interval", "CPU fact", projection.ParameterHash(), "gb300-26.06", "missed"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, name := range []string{"projection.json"} {
		if info, err := os.Stat(filepath.Join(page, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
