package checkpoint

// The checkpoints of a run folder, for people.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spmoe/launcher/system"
)

// Entry is a folder of a run that is, was or was to become a checkpoint.
type Entry struct {
	Name  string // in the run's folder
	Step  int64
	Time  time.Time // when it was written
	Bytes int64     // of its files
	Ranks int       // that wrote it; 0 if unknown
	Run   string    // id of the run that wrote it; empty if unknown

	// State is complete, unfinished, or damaged with a reason. It is judged by names and by the
	// presence and size of files, not by their content.
	State string
}

// List returns the checkpoint folders in the run folder dir, by step.
func List(dir string) ([]Entry, error) {
	folders, err := system.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range folders {
		d, ok := parseName(f.Name())
		if !ok || !f.IsDir() {
			continue
		}
		if e, err := inspect(filepath.Join(dir, d.name), d); err == nil {
			all = append(all, e)
		} else if !errors.Is(err, os.ErrNotExist) { // a running job renames and deletes folders
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// inspect returns the entry of a folder.
func inspect(path string, d stepDir) (Entry, error) {
	e := Entry{Name: d.name, Step: d.step, State: "complete"}
	stat, err := os.Stat(path)
	if err != nil {
		return e, err
	}
	e.Time = stat.ModTime()
	if e.Bytes, err = bytesIn(path); err != nil {
		return e, err
	}
	m, err := complete(path)
	if errors.Is(err, os.ErrNotExist) {
		return e, err
	}
	if err == nil {
		e.Ranks, e.Run = m.Ranks, m.Run
	}
	switch {
	case d.suffix == tempSuffix:
		e.State = "unfinished"
	case d.suffix == badSuffix:
		e.State = "damaged: set aside"
	case err != nil:
		e.State = fmt.Sprintf("damaged: %v", err)
	}
	return e, nil
}

// bytesIn returns the bytes of the files in a folder.
func bytesIn(path string) (n int64, err error) {
	files, err := system.ReadDir(path)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			n += info.Size()
		}
	}
	return n, err
}

// Steps returns the paths of all checkpoints of a run folder, oldest first, complete or not. If
// path is a checkpoint, it returns path.
func Steps(path string) ([]string, error) {
	run, err := isRun(path)
	if err != nil || !run {
		return []string{path}, err
	}
	steps, err := list(path)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrNone)
	}
	var paths []string
	for _, s := range slices.Backward(steps) {
		paths = append(paths, filepath.Join(path, s.name))
	}
	return paths, nil
}

// Newest returns the path of the newest complete checkpoint of a run folder, as Latest does. If
// path is a checkpoint, it returns path.
func Newest(path string) (string, error) {
	run, err := isRun(path)
	if err != nil || !run {
		return path, err
	}
	return Latest(path)
}
