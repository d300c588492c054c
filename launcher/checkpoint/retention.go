package checkpoint

// Finding the newest checkpoint of a run folder, and deleting old ones.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/system"
)

// Latest returns the path of the newest complete checkpoint in the run folder dir: one with a valid
// manifest and all files in full size. It skips others. It does not verify contents; Open does. If
// there is none, or no folder, the error is ErrNone and says why each candidate was rejected.
func Latest(dir string) (path string, err error) {
	steps, err := list(dir)
	if err != nil {
		return "", err
	}
	none := fmt.Errorf("%s: %w", dir, ErrNone)
	for _, s := range steps {
		path := filepath.Join(dir, s.name)
		_, err := complete(path)
		if err == nil {
			return path, nil
		}
		none = fmt.Errorf("%w; %s: %v", none, s.name, err)
	}
	return "", none
}

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

// Prune deletes the complete checkpoints of a run in the folder dir except the newest keep. It does
// not delete incomplete folders, checkpoints of other runs, or those that a Reader has open.
// Checkpoints without an id count as the run's: it was resumed from them.
func Prune(fs Files, dir, run string, keep int) error {
	if keep < 0 {
		return fmt.Errorf("prune %s: keep %d checkpoints: expected at least 0", dir, keep)
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
		case !system.Locked(filepath.Join(path, manifestName)): // a second folder of the same step is a replaced one, or the remains of one
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
	path, hidden := filepath.Join(dir, s.name), filepath.Join(dir, hiddenName(s.step, prunedSuffix))
	if path != hidden {
		if err := moveOver(fs, path, hidden); err != nil {
			return err
		}
		// Otherwise a power failure could restore the old name with files missing.
		if err := fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return removeAll(fs, hidden)
}

// Tidy deletes what killed writers and Prunes have left in the run folder dir.
func Tidy(fs Files, dir string) error {
	return errors.Join(sweep(fs, dir, tempSuffix), sweep(fs, dir, prunedSuffix))
}

// sweep deletes the hidden folders with this suffix, which an interrupted writer or Prune has left,
// except what list counts.
func sweep(fs Files, dir, suffix string) error {
	steps, err := list(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		d, ok := parseName(e.Name())
		if ok && d.suffix == suffix && !slices.Contains(steps, d) {
			if err := removeAll(fs, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the checkpoint folders in dir, newest first. If dir does not exist there are none.
// Of two folders of the same step the replaced one comes second. One that Prune has hidden counts
// while it is whole and no complete one is as new: a launcher was killed before the next save was
// complete.
func list(dir string) ([]stepDir, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var steps, pruned []stepDir
	for _, e := range entries {
		switch d, ok := parseName(e.Name()); {
		case !ok || !e.IsDir():
		case d.suffix == "" || d.suffix == replacedSuffix:
			steps = append(steps, d)
		case d.suffix == prunedSuffix:
			pruned = append(pruned, d)
		}
	}
	whole := func(s stepDir) bool {
		_, err := complete(filepath.Join(dir, s.name))
		return err == nil
	}
	for _, p := range pruned {
		if !slices.ContainsFunc(steps, func(s stepDir) bool { return s.step >= p.step && whole(s) }) && whole(p) {
			steps = append(steps, p)
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
	root, err := system.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openManifest(root)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readManifest(root, f)
}

// belongsTo reports whether a checkpoint is one of a run, or has no id.
func (m *manifest) belongsTo(run string) bool { return m.Run == run || m.Run == "" }
