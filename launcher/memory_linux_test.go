package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spmoe/collective/heap"
	"spmoe/launcher/cli"
)

// train --dry-run states the memory that the process of the run then has at its peak.
func TestDryRunMemory(t *testing.T) {
	t.Parallel()
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector has a shadow of all memory")
	}
	const (
		share = 0.05
		// The test program is larger than the launcher, and reads 6 to 10 MiB more of its file. The
		// system counts resident pages late, by up to 64 per thread. Timing decides which ranks
		// help others, and so use memory of their own for it.
		allowance = 12 << 20
	)
	folder := t.TempDir()
	args := append(strings.Fields(`-np 2 train --threads 1 --steps 2 --set eval_sequences=4 --set sample_tokens=4 --report=false --set model.vocab=2048 --seq 512 --batch 2
		--micro-batch 1 --recompute selective --precision mxfp8 --set optimizer.moments=bf16 --save-every 1`), "--data", text(t), "--out", filepath.Join(folder, "run"))
	said := dryRunBytes(t, succeed(t, append(args, "--dry-run")...))
	peak := peakOf(t, args, filepath.Join(folder, "peak"))
	if math.Abs(said-peak) > share*peak+allowance {
		t.Errorf("--dry-run says %.1f MiB, the peak is %.1f MiB", said/(1<<20), peak/(1<<20))
	}
	t.Logf("--dry-run says %.1f MiB, the peak is %.1f MiB: %.3f", said/(1<<20), peak/(1<<20), said/peak)
}

// dryRunBytes returns the memory of all ranks in the output of a dry run.
func dryRunBytes(t *testing.T, text string) float64 {
	t.Helper()
	found := regexp.MustCompile(`memory of all ranks: ([0-9.]+) ([MG])iB`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no memory in\n%s", text)
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * map[string]float64{"M": 1 << 20, "G": 1 << 30}[found[2]]
}

// peakOf runs a launcher of its own and returns its peak of resident bytes. Ranks help each other,
// which takes memory.
func peakOf(t *testing.T, args []string, file string) float64 {
	t.Helper()
	p := prepare(t, "", args...)
	p.Env = append(p.Env, heap.ParkVar+"=", peakFile+"="+file)
	if code := p.begin(t).end(); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, p.errOut.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.ParseFloat(string(text), 64)
	if err != nil || peak == 0 {
		t.Fatalf("the peak is %q", text)
	}
	return peak
}
