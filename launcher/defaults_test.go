package main

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/moe"
)

// Help shows the defaults of a flavor.
func TestHelpShowsDefaultsOfFlavors(t *testing.T) {
	for line, want := range map[string]string{
		"help train":                         "peak learning rate (default 0.003)\n",
		"help train --flavor 16B":            "peak learning rate (default 0.00042)\n",
		"help train --all --flavor 500M":     "tokens per sequence (default 1024)\n",
		"help train keys --flavor small":     "vocabulary size (default 8192)\n",
		"help inspect keys --flavor 671B":    "hidden size (default 7168)\n",
		"help bench train --flavor small":    "tokens per sequence (default 512)\n",
		"help verify-layouts --flavor debug": "number of optimizer steps of the run (default 5)\n",
	} {
		if out := succeed(t, strings.Fields(line)...); !strings.Contains(out, want) {
			t.Errorf("%s lacks %q:\n%s", line, want, out)
		}
	}
	refuse(t, cli.ExitUsage, strings.Fields("help train --flavor smal"), "did you mean small?")
}

// A slice of a flavor trains at the flavor's rate.
func TestSliceKeepsTraining(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg := resolved(t, strings.Fields("-np 2 --flavor 16B --set model.layers=3 --seq 128 --batch 16 --steps 4")...)
	if s := cfg.Optimizer.Schedule; s.LR != 4.2e-4 || s.Warmup != 20 || cfg.Model.Layers != 3 || cfg.MicroBatch != 1 {
		t.Errorf("%+v", cfg)
	}
	own := write(t, "own.toml", "flavor = \"671B\"\nsteps = 500\n[optimizer]\nwarmup = 3\n")
	if s := resolved(t, "--config", own, "--set", "optimizer.decay=cosine").Optimizer.Schedule; s.LR != 2.2e-4 || s.Warmup != 3 || s.Decay != "cosine" {
		t.Errorf("%+v", s)
	}
}

// inspect and --dry-run describe the run.
func TestInspectTraining(t *testing.T) {
	t.Chdir(t.TempDir())
	want := []string{
		"training: 600 steps of 16 sequences of 1024 tokens, in passes of 1 sequence per rank; 9.83 M tokens\n",
		"optimizer: adamw with fp32 moments, learning rate 0.00076, warm-up of 60 steps, linear decay to 0.1 of the rate over the last 30% of steps, betas 0.9 and 0.95, weight decay 0.1, clip norm 1\n",
		"evaluation: 10 times 32 sequences, 1.1% of the FLOPs of all steps\n",
	}
	for _, line := range []string{"-np 2 inspect 500M", "-np 2 train --dry-run --flavor 500M"} {
		out := succeed(t, strings.Fields(line)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s lacks %q:\n%s", line, w, out)
			}
		}
	}
}

// A model from elsewhere trains with the settings of the flavor of its size.
func TestTrainingOfForeignModels(t *testing.T) {
	model, err := moe.FlavorByName("16B")
	if err != nil {
		t.Fatal(err)
	}
	model.Layers = 24
	hf, err := model.MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "config.json"), string(hf))
	if out := succeed(t, "inspect", folder); !strings.Contains(out, "learning rate 0.00042, warm-up of 2000 steps") {
		t.Errorf("inspect: %s", out)
	}
	cfg, err := cli.Resolve(running.DefaultsOf(model, cli.TrainDefaults), "", nil, nil) // as train --init-from does
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Optimizer.LR != 4.2e-4 || cfg.Model != model || cfg.Seq != 4096 || cfg.MicroBatch != 1 {
		t.Errorf("%+v", cfg)
	}
}
