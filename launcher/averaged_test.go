package main

import (
	"encoding/json"
	"math"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
)

// evaluatedLoss returns the validation loss that eval prints.
func evaluatedLoss(t *testing.T, args ...string) float64 {
	t.Helper()
	var got struct{ Loss float64 }
	out := succeed(t, append([]string{"eval", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return got.Loss
}

// --averaged gives the weights whose loss training has measured, also after an export.
func TestAveraged(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--set", "ema=0.9")...)
	log, err := record.Read("run")
	if err != nil {
		t.Fatal(err)
	}
	last, averaged := float64(log.Done.HeldOut), float64(log.Done.Averaged)
	if math.Abs(last-averaged) < 1e-3 {
		t.Fatalf("the average is too close to the last weights to tell them apart: %v and %v", averaged, last)
	}
	succeed(t, "convert", "--from", "run", "--to", "exported", "--averaged", "--dtype", "fp32")
	for _, c := range []struct {
		args []string
		want float64
	}{
		{[]string{"--checkpoint", "run"}, last},
		{[]string{"--checkpoint", "run", "--averaged"}, averaged},
		{[]string{"--checkpoint", "exported", "--data", data, "--seq", "32", "--max-tokens", "128"}, averaged},
	} {
		if got := evaluatedLoss(t, c.args...); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("eval %q: loss %v, training measured %v", c.args, got, c.want)
		}
	}
	refuse(t, cli.ExitUsage, []string{"eval", "--checkpoint", "exported", "--data", data, "--averaged"}, "--averaged: exported is a Hugging Face model")
	succeed(t, tiny(data, "--out", "plain", "--steps", "1")...)
	refuse(t, cli.ExitUsage, []string{"checkpoint", "export", "plain", "--out", "x", "--averaged"}, "holds no averaged weights: only runs with ema")
	refuse(t, cli.ExitUsage, []string{"generate", "--checkpoint", "plain", "--averaged", "--prompt", "x"}, "holds no averaged weights")
}
