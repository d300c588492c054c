// Which checkpoints a run folder holds, which one is the newest, and which ones go.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Latest returns the path of the newest complete checkpoint in the run folder dir: one with a valid manifest and
// all files in full size (their contents are Open's to verify). Others are passed over. If there is none, or no
// folder, the error is ErrNone and says why each candidate was not taken.
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

// Prune deletes the oldest complete checkpoints of the run folder dir but for the newest keep, which must be at
// least 1. Folders that are not complete are left alone.
func Prune(dir string, keep int) error {
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
		switch {
		case complete(filepath.Join(dir, s.name)) != nil:
		case s.step == last || kept == keep: // the same step again is a replaced one
			old = append(old, s)
		default:
			kept, last = kept+1, s.step
		}
	}
	slices.Reverse(old)
	for _, s := range old {
		if err := remove(dir, s); err != nil {
			return err
		}
	}
	return sweep(dir)
}

// remove deletes a checkpoint under a hidden name, so that no reader meets half of it.
func remove(dir string, s stepDir) error {
	hidden := filepath.Join(dir, hiddenName(s.step, prunedSuffix))
	if err := os.RemoveAll(hidden); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, s.name), hidden); err != nil {
		return err
	}
	return os.RemoveAll(hidden)
}

// sweep deletes what a Prune that was cut off left.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		visible, hidden := strings.CutPrefix(e.Name(), ".")
		visible, pruned := strings.CutSuffix(visible, prunedSuffix)
		if _, ok := parseStep(visible); ok && hidden && pruned {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
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

// list returns the checkpoint folders in dir, newest first, none if dir does not exist. Of two of the same step
// the replaced one comes second.
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
		return fmt.Errorf("%s is of step %d: the folder has been renamed", manifestName, m.Step)
	}
	return nil
}
