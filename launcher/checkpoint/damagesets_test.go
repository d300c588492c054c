package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Hundreds of ways to damage the newest of two checkpoints: given by itself it is refused, and a
// run goes on from the one before, bit for bit.
func TestDamageSets(t *testing.T) {
	dir := t.TempDir()
	older := readFolder(t, save(t, dir, 100, 2))
	path := save(t, dir, 200, 2)
	whole := readFolder(t, path)
	sets := 0
	// try gives some files of the newest checkpoint other contents; nil deletes one.
	try := func(what string, changed map[string][]byte) {
		t.Helper()
		sets++
		for name, data := range changed {
			replaceFile(t, filepath.Join(path, name), data)
		}
		if _, err := Open(path); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%s: error %v, want %v", what, err, ErrDamaged)
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r.Step() != 100 || len(r.SetAside()) != 1 || r.SetAside()[0].Path != path {
			t.Fatalf("%s: the run goes on from step %d, set aside %v", what, r.Step(), r.SetAside())
		}
		for _, want := range testState(100) {
			checkReads(t, r, want)
		}
		if err := errors.Join(r.Close(), os.Rename(path+badSuffix, path)); err != nil {
			t.Fatal(err)
		}
		for name := range changed {
			replaceFile(t, filepath.Join(path, name), whole[name])
		}
	}
	files := slices.Sorted(maps.Keys(whole))
	for _, a := range files {
		data := whole[a]
		for bit := 0; bit < 8*len(data); bit += 37 {
			flipped := slices.Clone(data)
			flipped[bit/8] ^= 1 << (bit % 8)
			try(fmt.Sprintf("bit %d of %s flipped", bit, a), map[string][]byte{a: flipped})
		}
		for i := range 50 {
			n := len(data) * i / 50
			try(fmt.Sprintf("%s cut to %d bytes", a, n), map[string][]byte{a: data[:n]})
		}
		try(a+" with a byte more", map[string][]byte{a: append(slices.Clone(data), 0)})
		try(a+" gone", map[string][]byte{a: nil})
		for _, b := range files {
			if a < b {
				try(a+" and "+b+" swapped", map[string][]byte{a: whole[b], b: whole[a]})
			}
			if a != b {
				try(a+" in place of "+b, map[string][]byte{b: whole[a]})
			}
		}
	}
	// Between steps: every choice of files from the older checkpoint, but none and, which is
	// another checkpoint, all.
	for mask := 1; mask < 1<<len(files); mask++ {
		changed := map[string][]byte{}
		for i, name := range files {
			if mask>>i&1 == 1 {
				changed[name] = older[name]
			}
		}
		delete(changed, configName) // is the same in both
		if len(changed) > 0 {
			try(fmt.Sprintf("%q of step 100", slices.Sorted(maps.Keys(changed))), changed)
		}
	}
	if sets < 500 {
		t.Errorf("only %d sets, want 500", sets)
	}
	t.Logf("%d sets", sets)
	checkLoads(t, path, 200)
}

// replaceFile gives a file new contents, or deletes it if data is nil.
func replaceFile(t *testing.T, path string, data []byte) {
	t.Helper()
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil && data != nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
