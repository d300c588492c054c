package checkpoint

// Finding the newest checkpoint of a run folder, and deleting old ones.

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
// manifest and all files in full size. It skips others. It does not verify contents; Open does. If
// there is none, or no folder, the error is ErrNone and says why each candidate was rejected.
func Latest(dir string) (path string, err error) {
	steps, err := list(dir)
	if err != nil {
		return "", err
	}
	var reasons strings.Builder
	for _, s := range steps {
		path := filepath.Join(dir, s.name)
		_, err := complete(path)
		if err == nil {
			return path, nil
		}
		fmt.Fprintf(&reasons, "; %s: %v", s.name, err)
	}
	return "", fmt.Errorf("%s: %w%s", dir, ErrNone, reasons.String())
}

// Fewest is the minimum number of complete checkpoints to retain, because the newest may turn out
// to be damaged. Only a run that keeps 0 retains none while it writes the next.
const Fewest = 2

// Count returns the number of steps with a complete checkpoint in the run folder dir. A folder that
// cannot be read has none.
func Count(dir string) (n int) {
	steps, _ := list(dir)
	last := int64(-1)
	for _, s := range steps {
		if s.step == last {
			continue
		}
		if _, err := complete(filepath.Join(dir, s.name)); err == nil {
			n, last = n+1, s.step
		}
	}
	return n
}

// Prune deletes the oldest complete checkpoints of a run in the folder dir except the newest keep,
// which are at least 2, or all of them if keep is 0. It does not delete incomplete folders,
// checkpoints of other runs, or those that a Reader has open. Checkpoints without an id count as
// the run's: it was resumed from them.
func Prune(fs Files, dir, run string, keep int) error {
	switch {
	case keep < 0:
		return fmt.Errorf("prune %s: keep %d checkpoints: expected at least 0", dir, keep)
	case keep > 0:
		keep = max(keep, Fewest)
	}
	steps, err := list(dir)
	if err != nil {
		return err
	}
	kept, last := 0, int64(-1)
	var old []stepDir
	for _, s := range steps {
		path := filepath.Join(dir, s.name)
		m, err := complete(path)
		switch {
		case err == nil && !m.belongsTo(run):
		case s.step != last && err != nil:
		case s.step != last && kept < keep:
			kept, last = kept+1, s.step
		case !inUse(filepath.Join(path, manifestName)): // a second folder of the same step is a replaced one, or the remains of one
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

// remove deletes a checkpoint under a hidden name, so that no reader sees a partial one.
func remove(fs Files, dir string, s stepDir) error {
	hidden := filepath.Join(dir, hiddenName(s.step, prunedSuffix))
	if err := removeAll(fs, hidden); err != nil {
		return err
	}
	if err := fs.Rename(filepath.Join(dir, s.name), hidden); err != nil {
		return err
	}
	// Otherwise a power failure could restore the old name with files missing.
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	return removeAll(fs, hidden)
}

// sweep deletes the hidden folders with this suffix, which an interrupted writer or Prune has left.
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

// stepDir is a folder with the name of a checkpoint.
type stepDir struct {
	name string
	step int64
}

// list returns the checkpoint folders in dir, newest first. If dir does not exist there are none.
// Of two folders of the same step the replaced one comes second.
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

// complete returns the manifest of the folder at path if it is a complete checkpoint of the step in
// its name.
func complete(path string) (*manifest, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(root)
	if err == nil {
		err = m.checkName(path)
	}
	return m, errors.Join(err, root.Close())
}

// belongsTo reports whether a checkpoint is one of a run, or has no id.
func (m *manifest) belongsTo(run string) bool { return m.Run == run || m.Run == "" }

// checkName returns an error if the folder has the name of another step.
func (m *manifest) checkName(path string) error {
	if step, ok := parseStep(filepath.Base(path)); ok && step != m.Step {
		return damagef("%s is of step %d: the folder has been renamed", manifestName, m.Step)
	}
	return nil
}
