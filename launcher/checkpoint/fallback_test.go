package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/system"
)

// damage flips a bit of a shard.
func damageShard(t *testing.T, path string) {
	t.Helper()
	shard := filepath.Join(path, shardName(0, 1))
	data, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	replaceFile(t, shard, data)
}

// Damaged checkpoints are set aside one after the other, under names that are free, until one is
// whole.
func TestFallBack(t *testing.T) {
	dir := t.TempDir()
	for step := range int64(4) {
		save(t, dir, step, 1)
	}
	damageShard(t, filepath.Join(dir, stepName(3)))
	if err := os.Remove(filepath.Join(dir, stepName(2), manifestName)); err != nil {
		t.Fatal(err)
	}
	writeFolder(t, filepath.Join(dir, "step-00000002.bad"), map[string][]byte{"kept": nil})
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Step() != 1 || len(r.SetAside()) != 2 {
		t.Errorf("step %d, set aside %v", r.Step(), r.SetAside())
	}
	for i, want := range [][]string{
		{"step-00000003", "rank-00000-of-00001.safetensors is damaged: chunk 0, bytes 0 to", "set aside as step-00000003.bad"},
		{"step-00000002", "no manifest.json", "set aside as step-00000002.bad-2"},
	} {
		for _, text := range want {
			if !strings.Contains(r.SetAside()[i].String(), text) {
				t.Errorf("set aside: %v, want %q", r.SetAside()[i], text)
			}
		}
	}
	want := []string{"step-00000000", "step-00000001", "step-00000002.bad", "step-00000002.bad-2", "step-00000003.bad"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the run holds %q, want %q", got, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	// The run can come to that step again.
	save(t, dir, 2, 1)
	save(t, dir, 3, 1)
	if err := Prune(Disk{}, dir, "", 2); err != nil {
		t.Fatal(err)
	}
	damageShard(t, filepath.Join(dir, stepName(2)))
	damageShard(t, filepath.Join(dir, stepName(3)))
	_, err = Open(dir)
	checkError(t, err, "no complete checkpoint", "step-00000003.bad-2", "step-00000002.bad-3")
	if !errors.Is(err, ErrNone) {
		t.Errorf("%v is not ErrNone", err)
	}
}

// What is no damage ends the search, and nothing is renamed; neither is what was asked for by its
// own name.
func TestNoFallBack(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1, 1)
	path := save(t, dir, 2, 1)
	body, err := bodyOf(readFolder(t, path)[manifestName])
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(body), `"version":4`, `"version":5`, 1)
	replaceFile(t, filepath.Join(path, manifestName), enclose([]byte(other)))
	_, err = Open(dir)
	checkError(t, err, "step-00000002", "version 5")
	if errors.Is(err, ErrDamaged) {
		t.Errorf("%v is taken for damage", err)
	}
	replaceFile(t, filepath.Join(path, manifestName), nil)
	_, err = Open(path)
	checkError(t, err, "not complete: it has no manifest.json")
	if got := names(t, dir); !slices.Equal(got, []string{"step-00000001", "step-00000002"}) {
		t.Errorf("the run holds %q", got)
	}
}

// A checkpoint that is open is not pruned, whatever its age.
func TestPruneSparesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(save(t, dir, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if !system.Locked(filepath.Join(r.Path(), manifestName)) {
		if runtime.GOOS != "linux" {
			t.Skip("this system has no file locks")
		}
		t.Fatal("an open checkpoint does not count as in use")
	}
	for step := int64(2); step < 6; step++ {
		save(t, dir, step, 1)
		if err := Prune(Disk{}, dir, "", 2); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"step-00000001", "step-00000004", "step-00000005"}) {
		t.Errorf("the run holds %q", got)
	}
	if err := errors.Join(r.Close(), Prune(Disk{}, dir, "", 2)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"step-00000004", "step-00000005"}) {
		t.Errorf("the run holds %q", got)
	}
}
