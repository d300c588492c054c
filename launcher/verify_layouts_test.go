package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/save"
)

// layoutLine is what the tests read of a line of verify-layouts --json.
type layoutLine struct {
	Layout, SHA256 string
}

// layoutLines runs verify-layouts, which must find one state, and returns its lines.
func layoutLines(t *testing.T, layouts int, args ...string) (all []layoutLine) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "layouts.jsonl")
	got := launch(slices.Concat([]string{"verify-layouts", "--data", ownText, "--json", file}, args)...)
	if got.code != cli.ExitOK || !strings.Contains(got.out, fmt.Sprintf("%d layouts, one state", layouts)) || !strings.Contains(got.out, "axes tried: every dp_replicate") {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var v layoutLine
		if err := json.Unmarshal(line, &v); err != nil || len(v.SHA256) != 64 {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, v)
	}
	if len(all) != layouts {
		t.Errorf("%d lines, want %d", len(all), layouts)
	}
	return all
}

// namedLayouts is layoutLines. It returns the names of the layouts.
func namedLayouts(t *testing.T, layouts int, args string) (names []string) {
	t.Helper()
	for _, v := range layoutLines(t, layouts, strings.Fields(args)...) {
		names = append(names, v.Layout)
	}
	return names
}

// All runs make the same passes: four, of four sequences each.
func TestVerifyLayouts(t *testing.T) {
	args := slices.Concat(strings.Fields("-np 4 --steps 2 --seq 32 --batch 16 --micro-batch 1 --precision mxfp8"), tinyModel, []string{"--set", "model.experts=8"})
	sums := map[string]int{}
	for _, v := range layoutLines(t, 7, args...) {
		sums[v.SHA256]++
	}
	if len(sums) != 1 {
		t.Errorf("checksums %v", sums)
	}
}

// Layouts in which ranks share sequences end in the state of one rank. Those that cannot are named.
func TestVerifyContexts(t *testing.T) {
	args := "-np 4 --cp 2,4 --pp 1,2 --steps 1 --seq 128 --batch 4 --set model.layers=2 --set model.dim=128 --set model.heads=2 --set model.expert_inter=64 --precision mxfp8"
	names := namedLayouts(t, 8, args)
	if want := []string{"dp1x1-ep1", "dp1x2-cp2-ep4", "dp1x2-cp2-ep2", "dp1x2-cp2-ep1", "dp2x1-cp2-ep2", "dp2x1-cp2-ep1", "pp2-dp1x1-cp2-ep2-1F1B", "pp2-dp1x1-cp2-ep1-1F1B"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	names = namedLayouts(t, 3, "-np 2 --cp 1,2 --tp 2 --steps 1 --seq 64 --batch 4 --set model.layers=2 --set model.dim=128 --set model.heads=2 --set model.expert_inter=64")
	if want := []string{"dp1x1-ep1", "dp1x1-tp2-ep2", "dp1x1-tp2-ep1"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// Pipelines end in the state of one rank. All layouts move and hold what the formulas say; guards
// move a little more.
func TestVerifyPipelines(t *testing.T) {
	args := "-np 2 --pp all --pp-schedule 1F1B,dualpipev --micro-batch 1 --steps 1 --seq 64 --batch 8 --set model.layers=3 --set model.dim=128 --set model.expert_inter=64 --precision mxfp8"
	names := namedLayouts(t, 6, args)
	if want := []string{"pp2-dp1x1-ep1-1F1B", "pp2-dp1x1-ep1-DualPipeV"}; !slices.Equal(names[4:], want) {
		t.Errorf("%q, want %q", names[4:], want)
	}
}

// fakeRuns ends in another state in the layouts that differ.
type fakeRuns struct{ differ func(mesh.Layout) bool }

func (f fakeRuns) Train(l checking.Trial) (sums save.StateSums, err error) {
	sums.All = "one"
	if f.differ(l.Layout) {
		sums.All = "other"
	}
	return sums, nil
}

func (fakeRuns) Locate(_, _ checking.Trial) (checking.FirstDifference, error) {
	return checking.FirstDifference{Step: 3, StateDifference: save.StateDifference{Layer: "layer 1", Tensor: "b", Tensors: 2, Distance: 0.5}}, nil
}

// A layout that ends in another state is named, and the exit code says so.
func TestVerifyLayoutsDiffer(t *testing.T) {
	var out, lines bytes.Buffer
	var trials []checking.Trial
	for _, l := range mesh.Sharing(4, 1, 1, 1, 8) {
		trials = append(trials, checking.Trial{Layout: l})
	}
	err := checking.CompareLayouts(trials, fakeRuns{func(l mesh.Layout) bool { return l.EP == 2 }}, &out, &lines)
	want := "2 of 6 layouts do not end in the state of dp1x4-ep4: dp1x4-ep2, dp2x2-ep2; they have ep > 1 and dp_replicate · efsdp > 1"
	if cli.CodeOf(err) != cli.ExitFailed || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if n := strings.Count(out.String(), "DIFFERS from step 3 on, in 2 tensors, most in layer 1: b (by 0.5)"); n != 2 ||
		strings.Count(lines.String(), `"same":false`) != 2 {
		t.Errorf("%s%s", out.String(), lines.String())
	}
	if n := strings.Count(lines.String(), `"first_difference":{"step":3,"layer":"layer 1","tensor":"b","distance":0.5,"tensors":2},"axis":"ep \u003e 1`); n != 2 {
		t.Errorf("%s", lines.String())
	}
}

// The axis that is named is the one that the layouts that differ have in common.
func TestNameAxis(t *testing.T) {
	for want, differ := range map[string]func(mesh.Layout) bool{
		"dp_replicate > 1":                    func(l mesh.Layout) bool { return l.DPReplicate > 1 },
		"efsdp > 1":                           func(l mesh.Layout) bool { return l.EFSDP() > 1 },
		"ep > 1":                              func(l mesh.Layout) bool { return l.EP > 1 },
		"dp_shard > 1":                        func(l mesh.Layout) bool { return l.DPShard > 1 },
		"dp_replicate · efsdp > 1":            func(l mesh.Layout) bool { return l.Replicas() > 1 },
		"ep > 1 and dp_replicate · efsdp > 1": func(l mesh.Layout) bool { return l.EP > 1 && l.Replicas() > 1 },
		"ep > 1 and efsdp > 1":                func(l mesh.Layout) bool { return l.EP > 1 && l.EFSDP() > 1 },
		"dp_replicate · dp_shard > 1":         func(l mesh.Layout) bool { return l.Batch() > 1 },
		"pp > 1":                              func(l mesh.Layout) bool { return l.PP > 1 },
		"several ranks":                       func(l mesh.Layout) bool { return l.World > 1 },
	} {
		var all []checking.Verified
		for _, l := range slices.Concat(mesh.Sharing(1, 1, 1, 1, 8), mesh.Sharing(8, 1, 1, 1, 8), mesh.Sharing(8, 2, 1, 1, 8), mesh.Sharing(8, 8, 1, 1, 8)) {
			all = append(all, checking.Verified{Layout: l.Name(), Mesh: l, Same: !differ(l)})
		}
		if got, agree, _ := checking.NameAxis(all); got != want || agree != 0 {
			t.Errorf("%s, as have %d others, want %s", got, agree, want)
		}
	}
	one := []checking.Verified{{Mesh: mesh.Default(1), Same: true}, {Mesh: mesh.Default(8)}, {Mesh: mesh.Sharing(8, 1, 1, 1, 8)[1], Same: true}}
	if got, agree, _ := checking.NameAxis(one); got != "ep > 1" || agree != 1 {
		t.Errorf("%s, as have %d others", got, agree)
	}
}
