package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/launcher/cli"
)

func TestProject(t *testing.T) {
	out := succeed(t, "project")
	for _, want := range []string{
		"SHA-256 " + projection.ParameterHash(), "as_run", "clean", "learned_twice", "simple", "651 tokens/s per GPU by the formula", "MFU 9.9 % and HFU 13.2 %", "201.3 s per step",
		"t_A    all-to-all", "t_R    residual", "calibrated", "memory ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !regexp.MustCompile(`(?m)^  as_run +851 +-1\.0% +\d+-\d+ \(±\d+ %\) +902 +-1\.7%`).MatchString(out) {
		t.Errorf("the headline is not there:\n%s", out)
	}
	explained := succeed(t, "project", "explain", "--stack", "titan_deepep", "--duplicate", "2")
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
	if err := json.Unmarshal([]byte(succeed(t, "project", "--json", "--gpu", "gb200", "--ep", "64")), &b); err != nil {
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
		"use one of B200":                  {"project", "--gpu", "tpu"},
		"the nearest that does and fits":   {"project", "--ep", "48"},
		"a GPU (weights":                   {"project", "--gpu", "h100"},
		"field bf16_tflops is missing":     {"project", "--hardware", bad},
		"model has 0 experts":              {"project", "--ratios", broken},
		"give --ratios":                    {"project", "--routing", "measured"},
		"--dedup is \"maybe\"":             {"project", "--dedup", "maybe"},
		"hidden_size is 0":                 {"project", "--model", write(t, filepath.Join(dir, "model.json"), `{"model_type":"x"}`)},
		"--model: ":                        {"project", "--model", filepath.Join(dir, "none.json")},
		"layers is 2000":                   {"project", "--layers", "2000"},
		"hidden share":                     {"project", "--overlap", "1.5"},
		"validate, hosts, or no":           {"project", "everything"},
		"did you mean validate":            {"project", "validat"},
		"did you mean mxfp8-experts":       {"project", "--precision", "mxfp8-expert"},
		"--project: 671B on 256 GPUs: GPU": tiny("none", "--project", "tpu"),
		"use one of kernels, exchange":     {"bench", "everything"},
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
	out := succeed(t, "project", "--hardware", write(t, filepath.Join(t.TempDir(), "x.json"), strings.Replace(faster, `"name": "B200"`, `"name": "X200"`, 1)))
	if !strings.Contains(out, "671B on 256 X200") || strings.Contains(out, "t_R ") {
		t.Errorf("another GPU carries B200's residual, or is not named:\n%s", out)
	}
}

func TestProjectValidate(t *testing.T) {
	out := succeed(t, "project", "validate")
	for _, want := range []string{"oss120-gb300", "from the others", "q235-gb300-26.06", "g4_full_b1", "outside", "not predicted:"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// One GPU, and one host, without a flag for the layout.
func TestProjectOneHost(t *testing.T) {
	for want, args := range map[string][]string{
		"16B on 1 h100, bf16, titan_fsdp: seq 4096, batch 4, micro-batch 4, TP 1, PP 1 x 1, EP 1": {"--model", "16B", "--layers", "5", "--gpus", "1", "--micro-batch", "4", "--recompute", "titan_op"},
		"16B on 4 h100, bf16, titan_fsdp: seq 4096, batch 4, micro-batch 1, TP 1, PP 1 x 1, EP 4": {"--model", "16B", "--layers", "12", "--gpus", "4"},
	} {
		if out := succeed(t, append([]string{"project", "--gpu", "h100", "--seq", "4096"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A model by its config.json.
func TestProjectModelFile(t *testing.T) {
	config := write(t, filepath.Join(t.TempDir(), "config.json"), `{"model_type":"qwen3_moe","hidden_size":2048,"num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"vocab_size":151936,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,"intermediate_size":6144}`)
	flags := []string{"--gpu", "b200", "--gpus", "8", "--seq", "4096", "--stack", "megatron_dedup", "--json"}
	var got [2]struct{ Budget struct{ Tokens float64 } }
	for i, model := range []string{config, "Qwen3-30B-A3B"} {
		if err := json.Unmarshal([]byte(succeed(t, append([]string{"project", "--model", model}, flags...)...)), &got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := got[0].Budget.Tokens, got[1].Budget.Tokens; a == 0 || math.Abs(a/b-1) > 1e-6 { // norms of queries and keys have no name there
		t.Errorf("%+v by its file, %+v by its name", got[0], got[1])
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
	page := filepath.Join(dir, "page")
	out = succeed(t, "project", "--routing", "measured", "--ratios", filepath.Join(run, ratios.Name)+","+bench, "--stack", "titan_deepep", "--out", page)
	if !strings.Contains(out, "from this machine's measured ratios of times alone: 651 -> ") || !strings.Contains(out, "CPU fact") {
		t.Errorf("%s", out)
	}
	html, err := os.ReadFile(filepath.Join(page, "projection.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":"waterfall"`, "80 % interval", "CPU fact", projection.ParameterHash(), "gb300-26.06"} {
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
