package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// torch returns a Python that has torch, or skips the test.
func torch(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("trains models in PyTorch")
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return python
		}
	}
	t.Skip("no Python with torch (Debian: python3-torch)")
	return ""
}

// built returns the launcher's path and the script's.
func built(t *testing.T) (launcher, script string) {
	t.Helper()
	t.Chdir("../../..")
	folder := t.TempDir()
	launcher, err := build(context.Background(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if script, err = unpack(folder); err != nil {
		t.Fatal(err)
	}
	return launcher, script
}

// shapes are models with all that flavors differ in.
var shapes = map[string]string{
	"V3":   "--model.layers 2 --model.q-rank 48 --model.groups 4 --model.top-k-groups 2 --model.shared-experts 2 --model.route-scale 2.5",
	"V2":   "--model.layers 2 --model.score-func softmax --model.norm-top-k=false --model.shared-experts 0",
	"YaRN": "--model.layers 2 --model.yarn.factor 40 --model.yarn.beta-fast 32 --model.yarn.beta-slow 1 --model.yarn.mscale 0.707 --model.yarn.mscale-all-dim 0.5 --model.yarn.original-positions 4096",
}

// The loss and the gradient of every weight are the engine's, in FP32, with attention in blocks.
func TestModelAgainstEngine(t *testing.T) {
	python := torch(t)
	launcher, script := built(t)
	for name, flags := range shapes {
		t.Run(name, func(t *testing.T) {
			in := t.TempDir()
			step := func(program string, args ...string) string {
				cmd := exec.Command(program, args...)
				cmd.Dir = in
				said, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v: %s", cmd.Args, err, said)
				}
				return string(said)
			}
			step(launcher, append(strings.Fields("train --flavor debug --steps 2 --seq 64 --batch 2"), strings.Fields(flags)...)...)
			step(launcher, "convert", "--from", filepath.Join("runs", "debug-1"), "--to", "model")
			step(python, script, "--threads", "1", "--set", "attention=16", "--check", "model", "checked")
			said := step(launcher, "check", "checked")
			if !strings.Contains(said, "loss ") || !strings.Contains(said, "gradient model.embed_tokens.weight") || !strings.Contains(said, " 0 out of bounds") {
				t.Errorf("%s", said)
			}
		})
	}
}

// Every variant trains: the script itself checks the number of parameters and that the loss falls.
func TestVariants(t *testing.T) {
	python := torch(t)
	launcher, script := built(t)
	r, err := parseRow(strings.Fields("--flavor debug --seq 64 --batch 2 --model.vocab 1000 " + shapes["V3"]))
	if err != nil {
		t.Fatal(err)
	}
	shape, err := side{program: launcher, args: r.inspect()}.output(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c := contest{python: python, script: script, threads: 1}
	for _, set := range []string{"", "weights=autocast,attention=128,loss=256,malloc=mmap"} {
		values, err := side{python, []string{script, "--threads", "1", "--steps", "2", "--set", set}, shape}.figures(context.Background())
		if err != nil || values["torch_bf16_tokens_per_s"] <= 0 || values["torch_last_loss"] >= values["torch_first_loss"] {
			t.Errorf("%q: %v, %v", set, values, err)
		}
	}
	shape = []byte(strings.Replace(string(shape), `"total": `, `"total": 1`, 1))
	if _, err := c.torch(shape, nil, 0, 1).figures(context.Background()); err == nil || !strings.Contains(err.Error(), "parameters, the launcher's 1") {
		t.Errorf("another number of parameters: %v", err)
	}
}
