package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
	writeShards(t, Disk{}, dir, 60, 1)
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
		if e.Name != w.name || e.Step != w.step || e.Ranks != w.ranks || e.State != w.state || e.Time.IsZero() || e.Bytes != size(t, filepath.Join(dir, e.Name)) {
			t.Errorf("%+v in state %q, want %+v", e, e.State, w)
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

// size returns the bytes of the files in a folder.
func size(t *testing.T, folder string) (n int64) {
	t.Helper()
	files, err := os.ReadDir(folder)
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
