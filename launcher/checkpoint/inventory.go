package checkpoint

// The checkpoints of a run folder, for people.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

	unfinished, aside bool
	err               error
}

// State returns whether the checkpoint can be used: complete, unfinished, or damaged. It judges by
// names and by the presence and size of files, not by their content.
func (e Entry) State() string {
	switch {
	case e.unfinished:
		return "unfinished"
	case e.aside:
		return "damaged: set aside"
	case e.err != nil:
		return fmt.Sprintf("damaged: %v", e.err)
	}
	return "complete"
}

// List returns the checkpoint folders in the run folder dir, by step.
func List(dir string) ([]Entry, error) {
	folders, err := system.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range folders {
		e, ok := parseEntry(f.Name())
		if !ok || !f.IsDir() {
			continue
		}
		if err := e.inspect(filepath.Join(dir, e.Name)); err == nil {
			all = append(all, e)
		} else if !errors.Is(err, os.ErrNotExist) { // a running job renames and deletes folders
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// Several describes the complete checkpoints of a folder if they belong to several runs, as
// "run 61a2: step-00000300; run 9c07: step-00000400". Otherwise it returns "". Those without an id
// belong to any run.
func Several(dir string) string {
	entries, err := List(dir)
	if err != nil {
		return ""
	}
	var runs []string // in the order of their first checkpoints
	names := map[string][]string{}
	for _, e := range entries {
		if e.Run == "" || e.State() != "complete" {
			continue
		}
		if names[e.Run] == nil {
			runs = append(runs, e.Run)
		}
		names[e.Run] = append(names[e.Run], e.Name)
	}
	if len(runs) < 2 {
		return ""
	}
	var all []string
	for _, run := range runs {
		all = append(all, fmt.Sprintf("run %s: %s", run, strings.Join(names[run], ", ")))
	}
	return strings.Join(all, "; ")
}

// parseEntry returns the entry for the name of a folder.
func parseEntry(name string) (e Entry, ok bool) {
	e.Name = name
	for _, suffix := range []string{tempSuffix, prunedSuffix} {
		if e.Step, ok = parseHidden(name, suffix); ok {
			e.unfinished = suffix == tempSuffix
			return e, true
		}
	}
	var number string
	name, number, e.aside = strings.Cut(name, badSuffix)
	e.Step, ok = parseStep(name)
	return e, ok && (number == "" || number[0] == '-')
}

// inspect adds the information in the folder itself.
func (e *Entry) inspect(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return err
	}
	e.Time = stat.ModTime()
	files, err := system.ReadDir(path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			e.Bytes += info.Size()
		}
	}
	root, err := system.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	m, err := readManifest(root)
	if err == nil {
		e.Ranks, e.Run = m.Ranks, m.Run
		if !e.aside && !e.unfinished {
			err = m.checkName(path)
		}
	}
	e.err = err
	return nil
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
