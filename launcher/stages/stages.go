// Package stages runs a job that consists of stages, and records in its folder which stages are
// done. The same job continues where it was interrupted. It repeats a stage only if the inputs of
// that stage changed.
package stages

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spmoe/launcher/system"
)

// File is the name of the record in the folder of a job.
const File = "stages.json"

// Stage is one stage of a job. R is its result, which later stages read.
type Stage[R any] struct {
	Name    string
	Inputs  any      // everything that the result depends on, as JSON
	Files   []string // what it writes, by name in the folder of the job
	Resumes bool     // when interrupted it continues from its files; other stages start again
	Run     func(context.Context) (R, error)
}

// Entry is the record of a stage.
type Entry struct {
	Name    string          `json:"name"`
	Inputs  string          `json:"inputs"` // SHA-256
	Done    bool            `json:"done"`
	Seconds float64         `json:"seconds"` // of all its attempts with these inputs, except killed ones
	Memory  int64           `json:"memory"`  // maximum resident bytes of these attempts; 0: unknown
	Result  json.RawMessage `json:"result,omitempty"`
}

// Job is a job in a folder. No other process may run a job in it.
type Job struct {
	Folder  string
	Held    *system.FolderLock // the folder, locked; nil: it is not held
	Entries []Entry            // in the order of their first runs

	// Tell is called with what happens to a stage.
	Tell func(stage, what string)
}

// record is the content of File.
type record struct {
	Stages []Entry `json:"stages"`
}

// mostRecord bounds the size of a record in bytes.
const mostRecord = 16 << 20

// Open returns the job in a folder, which it creates if necessary.
func Open(folder string, tell func(stage, what string)) (*Job, error) {
	j := &Job{Folder: folder, Tell: tell}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, File)
	text, err := system.ReadFile(path, mostRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	} else if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w: give another folder, or remove this file to start again", path, err)
	}
	j.Entries = r.Stages
	return j, nil
}

// Do returns the result of a stage. It runs the stage unless it is done with the same inputs. Files
// of earlier inputs are renamed, never deleted.
func Do[R any](ctx context.Context, j *Job, s Stage[R]) (r R, err error) {
	inputs, err := hash(s.Inputs)
	if err != nil {
		return r, fmt.Errorf("%s: %w", s.Name, err)
	}
	e := j.entry(s.Name)
	existing := j.existing(s.Files)
	if err := j.Held.Check(); err != nil {
		return r, err
	}
	switch {
	case e.Done && e.Inputs == inputs && len(existing) == len(s.Files):
		if err := json.Unmarshal(e.Result, &r); err != nil {
			return r, fmt.Errorf("%s: the result of stage %s: %w", filepath.Join(j.Folder, File), s.Name, err)
		}
		j.Tell(s.Name, "done before")
		return r, nil
	case e.Inputs == "" && len(existing) > 0:
		return r, fmt.Errorf("%s exists, and stage %s has not written it: give another folder", existing[0], s.Name)
	case e.Inputs != "" && e.Inputs != inputs:
		if err := j.setAside(s.Name, existing); err != nil {
			return r, err
		}
		*e = Entry{Name: s.Name}
	case e.Inputs == inputs && !s.Resumes:
		if err := remove(existing); err != nil {
			return r, err
		}
	}
	e.Inputs, e.Done = inputs, false
	if err := j.save(); err != nil {
		return r, err
	}
	return run(ctx, j, s, e)
}

// run runs a stage and records its result, its time and its memory.
func run[R any](ctx context.Context, j *Job, s Stage[R], e *Entry) (r R, err error) {
	j.Tell(s.Name, "")
	system.ForgetMostResident()
	begin := time.Now()
	r, err = s.Run(ctx)
	e.Seconds += time.Since(begin).Seconds()
	e.Memory = max(e.Memory, system.MostResident())
	if err != nil {
		return r, errors.Join(err, j.save())
	}
	if e.Result, err = json.Marshal(r); err != nil {
		return r, err
	}
	e.Done = true
	return r, j.save()
}

// entry returns the entry of a stage, which it adds if there is none. It is valid until the next
// call.
func (j *Job) entry(name string) *Entry {
	i := slices.IndexFunc(j.Entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		i = len(j.Entries)
		j.Entries = append(j.Entries, Entry{Name: name})
	}
	return &j.Entries[i]
}

// existing returns the paths of those files that exist.
func (j *Job) existing(names []string) (paths []string) {
	for _, name := range names {
		path := filepath.Join(j.Folder, name)
		if _, err := os.Lstat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// setAside renames files of earlier inputs.
func (j *Job) setAside(stage string, paths []string) error {
	for _, path := range paths {
		now := path + ".old"
		for n := 2; exists(now); n++ {
			now = fmt.Sprintf("%s.old-%d", path, n)
		}
		if err := os.Rename(path, now); err != nil {
			return err
		}
		j.Tell(stage, fmt.Sprintf("its inputs changed: the earlier %s is now %s", filepath.Base(path), filepath.Base(now)))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// remove deletes what an interrupted or incomplete stage has written.
func remove(paths []string) (err error) {
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// save writes the record.
func (j *Job) save() error {
	text, err := json.MarshalIndent(record{j.Entries}, "", "  ")
	if err == nil {
		err = j.Held.Check()
	}
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(j.Folder, File), append(text, '\n'))
}

// hash returns the SHA-256 of a value as JSON.
func hash(v any) (string, error) {
	text, err := json.Marshal(v)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
