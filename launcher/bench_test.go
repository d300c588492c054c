package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/bench"
	"spmoe/launcher/cli"
)

// TestBenchUsage: what is not a benchmark is the user's mistake, and nothing is measured.
func TestBenchUsage(t *testing.T) {
	for _, args := range [][]string{
		{"bench"}, {"bench", "kernel"}, {"bench", "kernels", "twice"}, {"bench", "kernels", "--json", t.TempDir()}, {"bench", "kernels", "--match", "("},
	} {
		var out, errOut bytes.Buffer
		if code := run(context.Background(), args, &out, &errOut); code != cli.ExitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, cli.ExitUsage)
		}
		if out.Len() > 0 || !strings.Contains(errOut.String(), "launcher: ") {
			t.Errorf("%v: output %q, errors %q", args, out.String(), errOut.String())
		}
	}
}

// TestBenchOutput: the table and the JSON lines have the same results, one a kernel.
func TestBenchOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	args := []string{"bench", "kernels", "--quick", "--match", "^mxfp8_gemm 64x512x256$"}
	table := succeed(t, append(args, "--json", file)...)
	if want := regexp.MustCompile(`(?m)^mxfp8_gemm +64x512x256 +[\d.]+ GFLOP/s +[\d.]+ +[\d.]+% +[\d.]+ x  peak`); !want.MatchString(table) {
		t.Errorf("the table is\n%s", table)
	}
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(lines), succeed(t, append(args, "--json", "-")...)} {
		var r bench.Result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if r.Name != "mxfp8_gemm" || r.Shape != "64x512x256" || r.Unit != "GFLOP/s" || !(r.Value > 0 && r.Limit > 0 && r.Share > 0 && r.OverBF16 > 0) {
			t.Errorf("%q", text)
		}
	}
}

// TestBenchInterrupted: a signal ends the measurements.
func TestBenchInterrupted(t *testing.T) {
	refuse(t, cli.ExitInterrupted, []string{"bench", "kernels"})
}
