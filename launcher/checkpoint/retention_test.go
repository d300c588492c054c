package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// By number and not by text; incomplete folders, stray files and other names do not count.
func TestLatest(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 99_999_999, 1)
	want := save(t, dir, 100_000_000, 1)
	writeFolder(t, dir, map[string][]byte{"step-00000007": nil, "notes.txt": nil})
	for _, name := range []string{"step-200000000", "step-1", "step-+0000001", "step-x", "step-00000001-old", ".step-00000300.tmp"} {
		writeFolder(t, filepath.Join(dir, name), nil)
	}
	if got, err := Latest(dir); err != nil || got != want {
		t.Errorf("Latest = %q, %v, want %q", got, err, want)
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for step := range int64(5) {
		save(t, dir, step, 1)
	}
	broken := filepath.Join(dir, stepName(2))
	if err := os.Remove(filepath.Join(broken, manifestName)); err != nil {
		t.Fatal(err)
	}
	// A Prune that was cut off, and a writer at work.
	writeFolder(t, filepath.Join(dir, hiddenName(9, prunedSuffix)), map[string][]byte{configName: nil})
	w := writeShards(t, Disk{}, dir, 5, 1)

	checkError(t, Prune(Disk{}, dir, "", -1), "at least 0")
	for _, c := range []struct {
		keep int
		want []string
	}{
		{9, []string{".step-00000005.tmp", "step-00000000", "step-00000001", "step-00000002", "step-00000003", "step-00000004"}},
		{3, []string{".step-00000005.tmp", "step-00000001", "step-00000002", "step-00000003", "step-00000004"}},
		{1, []string{".step-00000005.tmp", "step-00000002", "step-00000004"}},
		{0, []string{".step-00000005.tmp", "step-00000002"}},
	} {
		if err := Prune(Disk{}, dir, "", c.keep); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("keep %d leaves %q, want %q", c.keep, got, c.want)
		}
	}
	if err := errors.Join(w.Commit(nil, nil), w.Abort()); err != nil { // which keeps what is committed
		t.Fatal(err)
	}
	checkLoads(t, dir, 5)
}

// A run prunes and replaces only its own checkpoints, and those without an id.
func TestOtherRuns(t *testing.T) {
	dir := t.TempDir()
	commit := func(run string, step int64) error {
		w, err := NewWriter(Disk{}, dir, step, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.Run = run
		return errors.Join(w.WriteShard(0, nil, nil), w.Commit(nil, nil), w.Abort())
	}
	for step, run := range []string{"", "", "aa", "bb", "aa", "bb", "aa"} {
		if err := commit(run, int64(step)); err != nil {
			t.Fatal(err)
		}
	}
	checkError(t, commit("aa", 5), "is of another run, bb", "move it away")
	if err := commit("aa", 4); err != nil {
		t.Error(err)
	}
	if err := Prune(Disk{}, dir, "aa", 2); err != nil {
		t.Error(err)
	}
	if n := Count(dir); n != 4 {
		t.Errorf("%d checkpoints are left, want 4", n)
	}
}
