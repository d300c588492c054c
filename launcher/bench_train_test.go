package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/measuring"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
)

// Steps are measured in every precision that was asked for, and the figures agree with each other.
func TestBenchTrain(t *testing.T) {
	small := []string{"-np", "2", "bench", "train", "--quick", "--set", "model.layers=2", "--set", "model.dim=32", "--seq", "32", "--batch", "4", "--data", text(t)}
	table := succeed(t, append(small, "--precision", "bf16,mxfp8-experts")...)
	for _, want := range []string{"\nbf16 ", "\nmxfp8-experts ", "mxfp8-experts: ms per step", "optimizer", "rank 1"} {
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

// A pipeline shows the waits for messages of other stages.
func TestBenchTrainPipeline(t *testing.T) {
	table := succeed(t, "-np", "2", "bench", "train", "--quick", "--set", "model.layers=2", "--set", "model.dim=32", "--seq", "32", "--batch", "4",
		"--precision", "bf16", "--pp", "2", "--set", "pp_microbatches=4", "--data", text(t))
	if !strings.Contains(table, "\nmessages ") {
		t.Errorf("no messages in\n%s", table)
	}
}

// Up to 15 ranks, all waits are printed; of more, the five longest.
func TestBenchTrainWaits(t *testing.T) {
	for _, ranks := range []int{2, 15, 16, 64} {
		waits := make([][]time.Duration, ranks)
		for r := range waits {
			waits[r] = make([]time.Duration, ranks)
			waits[r][ranks-1-r] = time.Duration(r+1) * time.Millisecond
		}
		var out strings.Builder
		measuring.PrintStepWaits(&out, waits)
		lines := strings.Split(out.String(), "\n")
		want := fmt.Sprintf("rank 0 waits 1.0 ms per step: 1.0 for rank %d", ranks-1)
		if ranks >= 16 {
			want = fmt.Sprintf("rank %d waits %d.0 ms per step for rank 0", ranks-1, ranks)
		}
		n := map[int]int{2: 2, 15: 14, 16: 5, 64: 5}[ranks]
		if len(lines) != n+1 || lines[0] != want {
			t.Errorf("%d ranks: %d lines, want %d; the first is %q, want %q", ranks, len(lines)-1, n, lines[0], want)
		}
	}
}

// Precisions that take turns step by step are compared step by step; where one cannot go on, nobody
// waits for it.
func TestBenchTrainInterleaved(t *testing.T) {
	small := []string{"-np", "2", "bench", "train", "--quick", "--interleave", "--set", "model.layers=2", "--set", "model.dim=32", "--seq", "32", "--batch", "4", "--precision", "bf16,mxfp8,mxint8"}
	table := succeed(t, append(small, "--data", text(t))...)
	for _, want := range []string{"1 round of 1 warm-up and 4 measured steps, the precisions in turns step by step; medians of blocks of 1 step\n", "\nmxint8 ", "of all precisions together"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in the table\n%s", want, table)
		}
	}
	refuse(t, cli.ExitUsage, append(small, "--data", t.TempDir()), "has no files")
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
	if got := all.Newest(2); !slices.Equal(got, []float64{9, 6}) {
		t.Errorf("the newest are %v", got)
	}
	for memory, want := range map[int]int{0: 1, 1: 1, 3: 3, 4: 4, 100: 4} {
		if got := (measuring.TrainRounds{Steps: 4}).Block(config.Guard{Every: memory}); got != want {
			t.Errorf("with a check every %d steps a block has %d, want %d", memory, got, want)
		}
	}
}

func TestBenchTrainUsage(t *testing.T) {
	for want, args := range map[string]string{
		"kernels has no flag --threads: it is a flag of bench train":                    "bench kernels --threads 3",
		"bench exchange has no flag --interleave: it is a flag of bench train":          "bench exchange --interleave",
		"bench train has no flag --ranks: it is a flag of bench exchange, bench ratios": "bench train --ranks process",
		`precision is "fp9"`:                "bench train --precision bf16,fp9",
		"batch is 7: give a multiple of th": "bench train -np 2 --batch 7",
		`unknown flavor "tiny"`:             "bench train --flavor tiny",
	} {
		refuse(t, cli.ExitUsage, strings.Fields(args), want)
	}
}
