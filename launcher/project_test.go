package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/bench/projection"
)

func TestProject(t *testing.T) {
	for _, x := range []struct {
		args []string
		want []string
	}{
		{nil, []string{
			"671B on 256 B200, bf16, torchtitan, standard exchange: seq 8192", "tokens/s per GPU, 80 % interval", "t_A    all-to-all", "t_dp   data parallel",
			"nebius-bf16                  TorchTitan                   651", "nebius-deepep", "nebius-mxfp8", "constants SHA-256 " + projection.Fit(),
			"runs of frameworks that the constants were not fitted to are off by",
		}},
		{[]string{"explain", "--exchange", "dedup", "--duplicate", "2"}, []string{"d · FLOPs / (grouped", "nic_exchange = ", "(fitted, before 0.85: arXiv 2603.07685", "(assumed: "}},
		{[]string{"validate"}, []string{"each framework left out", "all of Megatron-Core left out", "kind dense", "b2-h05", "then blind", "not fitted: its layout is not published"}},
		// One GPU and one host, without a flag for the layout, and a GPU that no row has.
		{[]string{"--gpu", "h100", "--seq", "4096", "--model", "16B", "--layers", "5", "--gpus", "1", "--micro-batch", "4", "--recompute", "titan_op"}, []string{"batch 4, micro-batch 4, TP 1, PP 1 x 1, EP 1"}},
		{[]string{"--gpu", "h200", "--seq", "4096", "--model", "16B", "--layers", "12", "--gpus", "4"}, []string{"batch 4, micro-batch 1, TP 1, PP 1 x 1, EP 4", "no published run of this model on this GPU"}},
	} {
		out := succeed(t, append([]string{"project"}, x.args...)...)
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: no %q in\n%s", x.args, want, out)
			}
		}
	}
}

// budgetOf returns what project --json prints.
func budgetOf(t *testing.T, args ...string) (b projection.Budget) {
	t.Helper()
	var read struct {
		Budget struct{ Tokens, Low, High, MS float64 }
	}
	if err := json.Unmarshal([]byte(succeed(t, append([]string{"project", "--json"}, args...)...)), &read); err != nil {
		t.Fatal(err)
	}
	b.Tokens, b.Low, b.High, b.MS = read.Budget.Tokens, read.Budget.Low, read.Budget.High, read.Budget.MS
	return b
}

// A model and a GPU by their files are those that are known by name.
func TestProjectFiles(t *testing.T) {
	dir := t.TempDir()
	model := write(t, filepath.Join(dir, "model.json"), `{"name":"mine","flavor":"30B-A3B","source":"me","attention_rate":1.2}`)
	gpu := write(t, filepath.Join(dir, "gpu.json"), `{"name":"X200","bf16_tflops":2250,"hbm_gb":180,"hbm_tbs":7.7,"nvlink_gbs":900,"nvlink_domain":8,"nic_gbs":50,"fp8":"fp8"}`)
	flags := []string{"--gpus", "8", "--seq", "4096", "--software", "megatron", "--exchange", "dedup"}
	named := budgetOf(t, append(flags, "--gpu", "b200", "--model", "Qwen3-30B-A3B")...)
	filed := budgetOf(t, append(flags, "--hardware", gpu, "--model", model)...)
	if named.Tokens == 0 || math.Abs(filed.Tokens/named.Tokens-1) > 1e-4 {
		t.Errorf("%+v by files, %+v by names", filed, named)
	}
	if !(named.Low < named.Tokens && named.Tokens < named.High) || math.Abs(named.Tokens*named.MS-1000) > 1e-6 {
		t.Errorf("%+v", named)
	}
}
