package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"spmoe/bench"
)

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
