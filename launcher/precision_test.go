package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// TestPrecisionFlags: what exists is accepted, with or without kernels, the rest is refused with
// the choices.
func TestPrecisionFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		flags string
		code  int
		words string
	}{
		{"--precision mxfp8 --set mx.gradient=e5m2 --set mx.scale=floor", cli.ExitOK, "gradient = 'e5m2'"},
		{"--precision fp4", cli.ExitUsage, "mxfp8-experts"},
		{"--set mx.scale=up", cli.ExitUsage, "rceil"},
		{"--set mx.gradient=e6m1", cli.ExitUsage, "e5m2"},
		{"--precision mxfp8 --set mx.gradient=e2m1", cli.ExitOK, "gradient = 'e2m1'"},
		{"--precision nvfp4 --set nvfp4.rht=false --set nvfp4.bf16_tail=0.3 --set sum=exact", cli.ExitOK, "rht = false"},
		{"--precision nvfp4 --set nvfp4.bf16_tail=2", cli.ExitUsage, "a share of the layers from 0 to 1"},
		{"--precision nvfp4 --set sum=fp64", cli.ExitUsage, "h100-nopromotion"},
		{"--precision bf16 --set sum=h100", cli.ExitOK, "sum = 'h100'"},
		{"--precision nvfp4 --set sum=h100", cli.ExitUsage, "an H100 has no block scales: use b200"},
		{"--precision fp8-block --set sum=h100-nopromotion", cli.ExitUsage, "a chain cannot cross from one scale to the next: use h100"},
		{"--precision fp8-tensor --set sum=h100-nopromotion", cli.ExitOK, "precision = 'fp8-tensor'"},
		{"--precision mxint8 --set sum=b200", cli.ExitUsage, "b200 cannot multiply int8"},
		{"--precision fp32 --set sum=b200", cli.ExitUsage, "use bf16"},
		{"--precision nvfp4 --set mx.gradient=e5m2", cli.ExitUsage, "transform both operands"},
		{"--precision fp8-block --set fp8.scale=pow2", cli.ExitOK, "scale = 'pow2'"},
		{"--precision fp8-block --set fp8.gradient=128x128 --set dp_replicate=2 -np 2 --ep 1", cli.ExitUsage, "rows of an expert, which replicas would divide"},
		{"--set recipe=none.toml", cli.ExitUsage, "launcher recipe nvfp4 prints one"},
	} {
		var out, errOut bytes.Buffer
		code := run(context.Background(), append([]string{"train", "--dry-run"}, strings.Fields(c.flags)...), &out, &errOut)
		if text := out.String() + errOut.String(); code != c.code || !strings.Contains(text, c.words) {
			t.Errorf("%s: exit code %d and %q, want %d and %q", c.flags, code, text, c.code, c.words)
		}
	}
}

// TestOldSum: configurations of earlier versions set fp8.accumulate and nvfp4.four_over_six, whose
// defaults are accepted, and nvfp4.sum.
func TestOldSum(t *testing.T) {
	t.Chdir(t.TempDir())
	file := write(t, "config.toml", "steps = 7\n[fp8]\nscale = 'pow2'\naccumulate = 'fp32'\ngradient = '1x128'\n[nvfp4]\nfour_over_six = false\n")
	if cfg := resolved(t, "--config", file); cfg.Steps != 7 || cfg.FP8.Scale != "pow2" {
		t.Errorf("steps %d, scales %s", cfg.Steps, cfg.FP8.Scale)
	}
	write(t, "config.toml", "[fp8]\naccumulate = '14bit'\n")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--config", file}, "config.toml:2: fp8.accumulate is gone")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--config", write(t, "config.toml", "[nvfp4]\nfour_over_six = true\n")}, "config.toml:2: nvfp4.four_over_six is gone")
	model := write(t, "config.json", "{\n  \"model_type\": \"deepseek_v3\"\n}")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--config", model}, "config.json is JSON, as a model's config.json, not TOML: give the folder of a Hugging Face model to --init-from")
	refuse(t, cli.ExitUsage, []string{"compare", "--precision", "bf16,fp8-block+14bit"}, `"14bit" is neither a setting`)
	for _, c := range []struct{ precision, sum, want string }{{"nvfp4", "fp32", "fp32"}, {"nvfp4", "exact", "exact"}, {"mxfp8", "exact", "fp32"}} {
		write(t, "config.toml", "precision = '"+c.precision+"'\nsteps = 7\n[nvfp4]\nrht = true\nsum = '"+c.sum+"'\n[fp8]\nscale = 'pow2'\n")
		if cfg := resolved(t, "--config", file); cfg.Sum != c.want || cfg.Steps != 7 || cfg.FP8.Scale != "pow2" {
			t.Errorf("%s with nvfp4.sum = %s: sum %s, want %s", c.precision, c.sum, cfg.Sum, c.want)
		}
	}
}

// TestRecipeFile: a built-in recipe, written to a file and changed, is what a run trains in, and
// the run's own configuration has it.
func TestRecipeFile(t *testing.T) {
	t.Chdir(t.TempDir())
	text := strings.Replace(succeed(t, "recipe", "nvfp4", "--set=nvfp4.rht=false"), `name = "nvfp4"`, `name = "mine"`, 1)
	if err := os.WriteFile("mine.toml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := succeed(t, "train", "--set", "recipe=mine.toml", "--dry-run")
	if !strings.Contains(out, "precision = 'mine'") || !strings.Contains(out, "dgrad.weight = { format") {
		t.Errorf("the configuration is\n%s", out)
	}
	config, _, _ := strings.Cut(out, "\n\nmodel")
	if err := os.WriteFile("config.toml", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove("mine.toml"); err != nil {
		t.Fatal(err)
	}
	cfg, err := cli.Resolve(cli.TrainDefaults, "config.toml", []byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cfg.Recipe()
	if err != nil || p.Name != "mine" || p.Linears.Wgrad.Left.Format.Hadamard != 0 || p.PlainTail != 0.15 {
		t.Errorf("%+v, %v", p, err)
	}
	refuse(t, cli.ExitUsage, []string{"recipe", "bf16"}, "quantizes nothing")
	refuse(t, cli.ExitUsage, []string{"recipe"}, "recipe takes one name")
}
