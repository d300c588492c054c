package checkpoint

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
)

func TestList(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 10, 2)
	damageShard(t, save(t, dir, 20, 1)) // which a look at names and sizes does not find
	if err := os.Remove(filepath.Join(save(t, dir, 30, 2), shardName(1, 2))); err != nil {
		t.Fatal(err)
	}
	writeFolder(t, filepath.Join(dir, "step-00000040"), nil)
	if err := os.Rename(save(t, dir, 50, 1), filepath.Join(dir, "step-00000050.bad-2")); err != nil {
		t.Fatal(err)
	}
	writeShards(t, dir, 60, 1)
	writeFolder(t, filepath.Join(dir, "step-7"), nil)
	writeFolder(t, dir, map[string][]byte{"step-00000070": nil})
	entries, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name  string
		step  int64
		ranks int
		state string
	}{
		{"step-00000010", 10, 2, "complete"},
		{"step-00000020", 20, 1, "complete"},
		{"step-00000030", 30, 0, "damaged: rank-00001-of-00002.safetensors is missing"},
		{"step-00000040", 40, 0, "damaged: not complete: it has no manifest.json"},
		{"step-00000050.bad-2", 50, 1, "damaged: set aside"},
		{".step-00000060.tmp", 60, 0, "unfinished"},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d: %+v", len(entries), len(want), entries)
	}
	for i, w := range want {
		e := entries[i]
		if e.Name != w.name || e.Step != w.step || e.Ranks != w.ranks || e.State() != w.state || e.Time.IsZero() || (e.Bytes == 0) != (w.step == 40) {
			t.Errorf("%+v in state %q, want %+v", e, e.State(), w)
		}
	}
	if _, err := List(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	steps, err := Steps(dir)
	if err != nil || len(steps) != 4 || steps[0] != filepath.Join(dir, stepName(10)) || steps[3] != filepath.Join(dir, stepName(40)) {
		t.Errorf("steps %q (%v)", steps, err)
	}
	if newest, err := Newest(dir); err != nil || newest != steps[1] {
		t.Errorf("the newest is %q (%v), want %q", newest, err, steps[1])
	}
}

func TestExport(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(save(t, dir, 3, 4))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := filepath.Join(dir, "out.safetensors")
	err = r.Export(out, []Weight{
		{"master/model.layers.0.w", "w", safetensors.BF16}, {"router_bias/0", "bias", safetensors.F32},
		{"scalar", "s", safetensors.BF16}, {"empty", "e", safetensors.F32},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, source := range map[string]int{"w": 0, "bias": 2, "s": 4, "e": 5} {
		want := testState(3)[source]
		info, _ := f.Info(name)
		if !slices.Equal(info.Shape, want.Shape) {
			t.Errorf("%s has shape %v, want %v", name, info.Shape, want.Shape)
		}
		got, err := f.Float32s(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want.Data {
			if info.DType == safetensors.BF16 {
				w = tensor.ToBFloat16(w).Float32()
			}
			if math.Float32bits(got[i]) != math.Float32bits(w) {
				t.Errorf("%s[%d] is %v, want %v", name, i, got[i], w)
			}
		}
	}

	before := readFolderNames(t, dir)
	checkError(t, r.Export(out, []Weight{{"absent", "a", safetensors.F32}}), `no tensor "absent"`)
	checkError(t, r.Export(out, []Weight{{"scalar", "a", safetensors.F16}}), `"F16": use F32 or BF16`)
	checkError(t, r.Export(filepath.Join(dir, "none", "x"), nil), "none")
	if after := readFolderNames(t, dir); after != before {
		t.Errorf("the folder holds %s, before %s", after, before)
	}
}

func readFolderNames(t *testing.T, dir string) string { return strings.Join(names(t, dir), " ") }

// A tensor larger than what is held in memory at a time, in pieces that do not end where the parts do.
func TestExportParts(t *testing.T) {
	n := 2*exportElements + 12345
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	dir := t.TempDir()
	w, err := NewWriter(Disk{}, dir, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 3 {
		if err := w.WriteShard(rank, share([]Piece{{Name: "w", Shape: []int{n}, Data: data}}, rank, 3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(nil, nil); err != nil {
		t.Fatal(err)
	}
	r, err := Open(w.final)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := filepath.Join(dir, "w.safetensors")
	if err := r.Export(out, []Weight{{"w", "w", safetensors.F32}}); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Float32s("w"); err != nil || !slices.Equal(got, data) {
		t.Errorf("the exported tensor differs (%v)", err)
	}
}
