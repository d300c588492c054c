package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// What a writer of step 300 can leave behind when it dies, at every stage. In each case step 200
// must load, and a later writer of step 300 must succeed.
func TestCrashWhileWriting(t *testing.T) {
	whole := readFolder(t, save(t, t.TempDir(), 300, 2))
	manifest := whole[manifestName]
	stages := map[string]func(t *testing.T, dir string){
		"before the first shard": func(t *testing.T, dir string) {
			if _, err := NewWriter(Disk{}, dir, 300, 2); err != nil {
				t.Fatal(err)
			}
		},
		"between two shards": func(t *testing.T, dir string) {
			w, err := NewWriter(Disk{}, dir, 300, 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WriteShard(1, share(testState(300), 1, 2)); err != nil {
				t.Fatal(err)
			}
		},
		"before the commit": func(t *testing.T, dir string) { writeShards(t, dir, 300, 2) },
		"before the rename": func(t *testing.T, dir string) {
			writeFolder(t, filepath.Join(dir, hiddenName(300, ".tmp")), whole)
		},
	}
	// A file system that reorders renames and data may show the final name with less in it.
	for _, n := range []int{0, 1, len(manifest) / 2, len(manifest) - 1} {
		stages[fmt.Sprintf("manifest cut to %d under the final name", n)] = func(t *testing.T, dir string) {
			files := maps.Clone(whole)
			files[manifestName] = manifest[:n]
			writeFolder(t, filepath.Join(dir, stepName(300)), files)
		}
	}
	for name := range whole {
		stages["without "+name+" under the final name"] = func(t *testing.T, dir string) {
			files := maps.Clone(whole)
			delete(files, name)
			writeFolder(t, filepath.Join(dir, stepName(300)), files)
		}
	}
	for name, crash := range stages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			save(t, dir, 200, 1)
			crash(t, dir)
			checkLoads(t, dir, 200)
			save(t, dir, 300, 4)
			checkLoads(t, dir, 300)
		})
	}
}

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
	checkError(t, w.WriteShard(0, nil), "step 300, rank 0")
	checkError(t, w.Commit(nil, nil), "step 300")
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	checkLoads(t, dir, 200)
}
