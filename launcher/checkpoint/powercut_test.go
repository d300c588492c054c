package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What every power cut in the middle of two saves, each with its pruning, and of a third that
// replaces a checkpoint, may leave on the disk: after each operation, with names and data that were
// not yet durable kept, lost, or in part. Always one whole checkpoint loads, no older than the last
// that was complete, none has lost files, and a writer can go on.
func TestPowerCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	save(t, dir, 100, 1)
	save(t, dir, 150, 2)
	r, start := record(t, dir)
	type moment struct {
		ops           int
		begun, commit int64 // the newest step whose save has begun, and that is complete
	}
	moments := []moment{{0, 150, 150}}
	for _, step := range []int64{200, 300, 300} {
		moments = append(moments, moment{len(r.ops), step, moments[len(moments)-1].commit})
		saveOn(t, r, dir, step, 4)
		moments = append(moments, moment{len(r.ops), step, step})
		if err := Prune(r, dir, "", 2); err != nil {
			t.Fatal(err)
		}
	}

	var cuts []cut
	for _, names := range []float64{0, 0.2, 0.4, 0.6, 0.8, 1} {
		cuts = append(cuts, cut{names: names, data: "keep"}, cut{names: names, data: "keep", below: true}, cut{names: names, data: "lose"}, cut{names: names, data: "zero"})
		for _, torn := range []float64{0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99} {
			cuts = append(cuts, cut{names: names, data: "torn", torn: torn})
		}
	}
	seen := map[string]bool{}
	path := filepath.Join(t.TempDir(), "run")
	for n, at := 0, 0; n <= len(r.ops); n++ {
		for at+1 < len(moments) && moments[at+1].ops <= n {
			at++
		}
		m := moments[at]
		for _, c := range cuts {
			disk := start.after(r.ops, n, c)
			// The same disk is another case if more must be on it.
			key := fmt.Sprintf("%x %d", disk.hash(0), m.commit)
			if seen[key] {
				continue
			}
			seen[key] = true
			disk.write(t, 0, path)
			name := fmt.Sprintf("after %d of %d operations, %+v", n, len(r.ops), c)
			got, err := Open(path)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got.Step() < m.commit || got.Step() > m.begun || len(got.SetAside()) > 0 {
				t.Fatalf("%s: step %d, want %d to %d; set aside %v", name, got.Step(), m.commit, m.begun, got.SetAside())
			}
			for _, want := range testState(got.Step()) {
				checkReads(t, got, want)
			}
			var meta trainerState
			if err := got.Meta(&meta); err != nil || meta != stateAt(got.Step()) {
				t.Fatalf("%s: trainer state %+v of step %d (%v)", name, meta, got.Step(), err)
			}
			if err := got.Close(); err != nil {
				t.Fatal(err)
			}
			steps, _ := list(path)
			for _, s := range steps {
				if _, err := complete(filepath.Join(path, s.name)); err != nil && s.name == stepName(s.step) {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if len(seen)%100 == 0 {
				save(t, path, 400, 1)
				checkLoads(t, path, 400)
				if err := Prune(Disk{}, path, "", 2); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if left := names(t, path); len(left) != 2 {
					t.Fatalf("%s: after another save and pruning the run holds %q", name, left)
				}
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 500 {
		t.Errorf("only %d states of the disk were tried, want 500", len(seen))
	}
	t.Logf("%d states of the disk after %d operations", len(seen), len(r.ops))
}
