package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/convergence"
)

// The pooled estimates against numbers that another program computed from the same results.
func TestPool(t *testing.T) {
	t.Chdir("../../..")
	read := map[string]convergence.Result{}
	for _, study := range repeated {
		r, err := convergence.ReadResult(filepath.Join(results, study))
		if err != nil {
			t.Fatal(err)
		}
		read[study] = r
	}
	want := map[string]string{"nvfp4": "+2.90 % (+2.17 to +3.62)", "fp8-block": "+0.14 % (-0.36 to +0.63)"}
	seeds := map[string]int{"nvfp4": 14, "fp8-block": 26}
	all := pool(read)
	for _, a := range all {
		if interval(a.train) != want[a.name] || a.train.Pairs != seeds[a.name] {
			t.Errorf("%s: %s over %d seeds, want %s", a.name, interval(a.train), a.train.Pairs, want[a.name])
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d arms are repeated, want %d", len(all), len(want))
	}
}

// Holm's example of four p: the smallest times 4, then 3, 2 and 1, never falling, at most 1.
func TestHolm(t *testing.T) {
	arms := []arm{{p: 0.03}, {p: 0.005}, {p: 0.9}, {p: 0.04}}
	holm([]*arm{&arms[0], &arms[1], &arms[2], &arms[3]})
	for i, want := range []float64{0.09, 0.02, 0.9, 0.09} {
		if math.Abs(arms[i].holm-want) > 1e-12 {
			t.Errorf("p = %v became %v, want %v", arms[i].p, arms[i].holm, want)
		}
	}
	family := families([]arm{{study: "a"}, {study: "a/more"}, {study: "b"}, {study: "a", name: "x against y"}})
	if len(family["a"]) != 2 || len(family["b"]) != 1 || len(family) != 3 {
		t.Errorf("%v", family)
	}
}

// An arm that ends where the baseline was half a span before its end is that many steps behind.
func TestStepsBehind(t *testing.T) {
	baseline := []float64{4, 3, 2, 1}
	for last, want := range map[float64]float64{1: 0, 0.5: 0, 1.5: 25, 2: 50, 2.5: 75, 4: 150, 9: 150} {
		if got := stepsBehind(baseline, []float64{4, 3, 2, last}); got != want {
			t.Errorf("a final loss of %v is %v steps behind, want %v", last, got, want)
		}
	}
}

// The losses of runs survive being written. A run that has not ended is left out.
func TestLosses(t *testing.T) {
	folder := t.TempDir()
	run := func(name string, steps int, end string) {
		var b strings.Builder
		for i := range steps {
			b.WriteString(`{"step":{"step":` + string(rune('1'+i%9)) + `,"loss":` + map[bool]string{true: "2", false: "1"}[i < span] + "}}\n")
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "metrics.jsonl"), []byte(b.String()+end), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	const done = `{"done":{"step":75,"held_out_loss":1,"skipped":0}}` + "\n"
	run("bf16/seed-1", 75, done)
	run("mxfp8/seed-1", 75, done)
	run("mxfp8/seed-2", 75, "")
	path := filepath.Join(folder, lossesFile)
	if err := writeLosses(folder, path); err != nil {
		t.Fatal(err)
	}
	c, err := readLosses(path)
	if err != nil || !slices.Equal(c["mxfp8"][1], []float64{2, 1}) || len(c["mxfp8"]) != 1 {
		t.Errorf("%v, %v", c, err)
	}
	baseline, other, seeds := c.mean("bf16", "mxfp8")
	if seeds != 1 || !slices.Equal(gap(baseline, other), []float64{0, 0}) {
		t.Errorf("%v, %v of %d seeds", baseline, other, seeds)
	}
	if err := writeLosses(t.TempDir(), path); err == nil || !strings.Contains(err.Error(), "ARM/seed-N") {
		t.Errorf("a folder without runs: %v", err)
	}
}
