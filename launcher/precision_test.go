package main

import (
	"os"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// Keys of earlier versions are accepted with their defaults.
func TestOldSum(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"precision = 'bf16'\n[fp8]\nscale = 'pow2'\naccumulate = 'fp32'\ngradient = '1x128'\n": "fp32",
		"precision = 'nvfp4'\n[nvfp4]\nfour_over_six = false\n[fp8]\nscale = 'pow2'\n":         "fp32",
		"precision = 'nvfp4'\n[nvfp4]\nrht = true\nsum = 'fp32'\n[fp8]\nscale = 'pow2'\n":      "fp32",
	} {
		file := write(t, "config.toml", "steps = 7\n"+text)
		if cfg := resolved(t, "--config", file); cfg.Sum != want || cfg.Steps != 7 || cfg.FP8.Scale != "pow2" {
			t.Errorf("%s: sum %s, want %s", text, cfg.Sum, want)
		}
	}
}

// A built-in recipe, written to a file and changed, is what a run trains in, and the run's own
// configuration has it.
func TestRecipeFile(t *testing.T) {
	start, err := os.ReadFile("../docs/recipes/nvfp4.toml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	own := strings.NewReplacer(`name = "nvfp4"`, `name = "mine"`, ", hadamard = 16", "").Replace(string(start))
	write(t, "mine.toml", own)
	out := succeed(t, "train", "--set", "recipe=mine.toml", "--dry-run")
	if err := os.Remove("mine.toml"); err != nil {
		t.Fatal(err)
	}
	config, _, _ := strings.Cut(out, "\n\nmodel")
	cfg, err := cli.Resolve(cli.TrainDefaults, "config.toml", []byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cfg.Recipe()
	if err != nil || cfg.Precision != "mine" || p.Name != "mine" || p.Linears.Wgrad.Left.Format.Hadamard != 0 || p.PlainTail != 0.15 {
		t.Errorf("%s: %+v, %v", cfg.Precision, p, err)
	}
}
