package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer"
)

// All runs make the same passes: four, of four sequences each.
func TestVerifyLayouts(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "layouts.jsonl")
	got := launch(slices.Concat(strings.Fields("-np 4 verify-layouts --steps 2 --seq 32 --batch 16 --micro-batch 1 --precision mxfp8 --json"), []string{lines},
		tinyModel, []string{"--model.experts", "8", "--data", ownText})...)
	if got.code != exitOK || !strings.Contains(got.out, "7 layouts, one state") {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int{}
	for line := range bytes.Lines(text) {
		var v struct{ Layout, SHA256 string }
		if err := json.Unmarshal(line, &v); err != nil || len(v.SHA256) != 64 {
			t.Fatalf("%s: %v", line, err)
		}
		sums[v.SHA256]++
	}
	if len(sums) != 1 {
		t.Errorf("checksums %v", sums)
	}
}

// A layout that ends in another state is named, and the exit code says so.
func TestVerifyLayoutsDiffer(t *testing.T) {
	var out, lines bytes.Buffer
	layouts := mesh.All(4, 8)
	err := compareLayouts(layouts, func(l mesh.Layout) (trainer.StateSums, error) {
		if l.EP == 2 {
			return trainer.StateSums{All: "other", Tensors: map[string]string{"a": "1", "b": "3", "c": "4"}}, nil
		}
		return trainer.StateSums{All: "one", Tensors: map[string]string{"a": "1", "b": "2", "c": "3"}}, nil
	}, &out, &lines)
	if codeOf(err) != exitFailed || !strings.Contains(err.Error(), "2 of 6 layouts do not end in the state of dp1x4-ep4: dp1x4-ep2, dp2x2-ep2") {
		t.Errorf("%v", err)
	}
	if n := strings.Count(out.String(), "DIFFERS in 2 tensors, first in b"); n != 2 || strings.Count(lines.String(), `"same":false`) != 2 {
		t.Errorf("%s%s", out.String(), lines.String())
	}
}

// Ratios are those of an exchange among all ranks.
func TestRatiosNeedOneGroup(t *testing.T) {
	got := launch(slices.Concat(strings.Fields("-np 2 train --steps 1 --seq 32 --batch 4 --ep 1 --record-ratios"), tinyModel,
		[]string{"--data", ownText, "--out", filepath.Join(t.TempDir(), "run")})...)
	if got.code != exitUsage || !strings.Contains(got.errOut, "give --dp-replicate 1 --ep 2") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
}
