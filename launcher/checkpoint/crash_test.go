package checkpoint

import (
	"os"
	"testing"
)

// A crash between the two renames of publish: the old folder of the step is still found.
func TestCrashWhileReplacing(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 300, 1)
	writeShards(t, dir, 300, 2)
	if err := os.Rename(path, path+replacedSuffix); err != nil {
		t.Fatal(err)
	}
	checkLoads(t, dir, 300)

	// And one before the old folder is deleted: the new one wins, and Prune clears the old one
	// away.
	old := readFolder(t, path+replacedSuffix)
	save(t, dir, 300, 4)
	writeFolder(t, path+replacedSuffix, old)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Ranks() != 4 {
		t.Errorf("opened the checkpoint of %d ranks, want the newer one of 4", r.Ranks())
	}
	if err := Prune(Disk{}, dir, "", 2); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 || got[0] != "step-00000300" {
		t.Errorf("after Prune the run holds %q", got)
	}
}

// The writer's folder goes away under it, as on a full or failing disk: every call says so and
// nothing appears.
func TestFailingDisk(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 200, 1)
	w := writeShards(t, dir, 300, 2)
	if err := os.RemoveAll(w.temp); err != nil {
		t.Fatal(err)
	}
	checkError(t, w.WriteShard(0, nil, nil), "step 300, rank 0")
	checkError(t, w.Commit(nil, nil), "step 300")
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	checkLoads(t, dir, 200)
}
