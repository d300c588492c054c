package checkpoint

// Which checkpoints a run folder holds, which one is the newest, and which ones go.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Latest returns the path of the newest complete checkpoint in the run folder dir: one with a valid
// manifest and all files in full size (their contents are Open's to verify). Others are passed
// over. If there is none, or no folder, the error is ErrNone and says why each candidate was not
// taken.
func Latest(dir string) (path string, err error) {
	steps, err := list(dir)
	if err != nil {
		return "", err
	}
	var reasons strings.Builder
	for _, s := range steps {
		path := filepath.Join(dir, s.name)
		err := complete(path)
		if err == nil {
			return path, nil
		}
		fmt.Fprintf(&reasons, "; %s: %v", s.name, err)
	}
	return "", fmt.Errorf("%s: %w%s", dir, ErrNone, reasons.String())
}

// fewest is how many complete checkpoints a run keeps at least: the newest may turn out to be
// damaged.
const fewest = 2

// Prune deletes the oldest complete checkpoints of the run folder dir but for the newest keep,
// which must be at least 1; 2 are kept in any case. Folders that are not complete, and checkpoints
// that a Reader has open, are left alone.
func Prune(fs Files, dir string, keep int) error {
	if keep < 1 {
		return fmt.Errorf("prune %s: keep %d checkpoints: expected at least 1", dir, keep)
	}
	steps, err := list(dir)
	if err != nil {
		return err
	}
	kept, last := 0, int64(-1)
	var old []stepDir
	for _, s := range steps {
		switch path := filepath.Join(dir, s.name); {
		case s.step != last && complete(path) != nil:
		case s.step != last && kept < max(keep, fewest):
			kept, last = kept+1, s.step
		case !inUse(filepath.Join(path, manifestName)): // the same step again is a replaced one, or what is left of it
			old = append(old, s)
		}
	}
	slices.Reverse(old)
	for _, s := range old {
		if err := remove(fs, dir, s); err != nil {
			return err
		}
	}
	return sweep(fs, dir, prunedSuffix)
}

// remove deletes a checkpoint under a hidden name, so that no reader meets half of it.
func remove(fs Files, dir string, s stepDir) error {
	hidden := filepath.Join(dir, hiddenName(s.step, prunedSuffix))
	if err := removeAll(fs, hidden); err != nil {
		return err
	}
	if err := fs.Rename(filepath.Join(dir, s.name), hidden); err != nil {
		return err
	}
	// Otherwise a power cut could bring back the old name with files missing.
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	return removeAll(fs, hidden)
}

// sweep deletes the hidden folders with this suffix, which a writer or a Prune that was cut off has
// left.
func sweep(fs Files, dir, suffix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := parseHidden(e.Name(), suffix); ok {
			if err := removeAll(fs, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// stepDir is a folder that by its name is a checkpoint.
type stepDir struct {
	name string
	step int64
}

// list returns the checkpoint folders in dir, newest first, none if dir does not exist. Of two of
// the same step the replaced one comes second.
func list(dir string) ([]stepDir, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var steps []stepDir
	for _, e := range entries {
		if step, ok := parseStep(e.Name()); ok && e.IsDir() {
			steps = append(steps, stepDir{e.Name(), step})
		}
	}
	slices.SortFunc(steps, func(a, b stepDir) int {
		return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(a.name, b.name))
	})
	return steps, nil
}

// complete returns nil if the folder at path is a whole checkpoint of the step that its name says.
func complete(path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	m, err := readManifest(root)
	if err == nil {
		err = m.checkName(path)
	}
	return errors.Join(err, root.Close())
}

// checkName returns an error if the folder's name is that of another step.
func (m *manifest) checkName(path string) error {
	if step, ok := parseStep(filepath.Base(path)); ok && step != m.Step {
		return damagef("%s is of step %d: the folder has been renamed", manifestName, m.Step)
	}
	return nil
}
