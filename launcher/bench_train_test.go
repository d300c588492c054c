package main

import (
	"bufio"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/measuring"
	"spmoe/launcher/trainer"
)

// Steps are measured in every precision that was asked for, and the figures agree with each other.
func TestBenchTrain(t *testing.T) {
	small := []string{"-np", "2", "bench", "train", "--quick", "--set", "model.layers=2", "--set", "model.dim=32", "--seq", "32", "--batch", "4", "--data", text(t)}
	table := succeed(t, append(small, "--precision", "bf16,mxfp8-experts")...)
	for _, want := range []string{"\nbf16 ", "\nmxfp8-experts ", "MFU", "activations"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in the table\n%s", want, table)
		}
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(succeed(t, append(small, "--precision", "fp32,mxint8", "--json", "-")...))); lines.Scan(); {
		var line struct {
			Name, Flavor string
			Value        float64
			NP           int
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Flavor != "debug" || line.NP != 2 {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		values[line.Name] = line.Value
	}
	for _, name := range []string{"tokens_per_s", "tflops", "mfu", "memory_bytes", "activation_bytes"} {
		if !(values["fp32_"+name] > 0 && values["mxint8_"+name] > 0) {
			t.Errorf("%s: %v and %v", name, values["fp32_"+name], values["mxint8_"+name])
		}
	}
	if got, want := values["mxint8_over_fp32"], values["mxint8_tokens_per_s"]/values["fp32_tokens_per_s"]; math.Abs(got-want) > 1e-9*want {
		t.Errorf("the ratio is %v, expected %v", got, want) // of one round
	}
}

// A block is the mean of its steps, so that what only some of them pay for counts for all; the last
// may be shorter.
func TestTurnsBlocks(t *testing.T) {
	var all measuring.Samples
	seconds := func(s ...float64) (steps []time.Duration) {
		for _, x := range s {
			steps = append(steps, time.Duration(x*1e9))
		}
		return steps
	}
	all.Add(trainer.Benchmark{Steps: seconds(9), Tokens: 18, FLOPs: 36, Peak: 4}, 4)
	got := all.Add(trainer.Benchmark{Steps: seconds(1, 1, 2, 4, 3), Tokens: 18, FLOPs: 36, Peak: 4}, 4)
	if !slices.Equal(got, []float64{9, 6}) || !slices.Equal(all.Rates, []float64{2, 9, 6}) || !slices.Equal(all.Mfus, []float64{1, 4.5, 3}) {
		t.Errorf("%v tokens a second, %v in all, MFU %v", got, all.Rates, all.Mfus)
	}
}
