package checkpoint

import (
	"errors"
	"os"
	"path/filepath"

	"spmoe/launcher/system"
)

// Held is the file system of a run folder that the job holds. An operation fails if the folder has
// lost its name or its lock. It takes place in the held folder, even if another one gets the name
// at that moment.
type Held struct{ Folder *system.FolderLock }

// in returns the folder and the name of a path in it.
func (h Held) in(path string) (run *os.Root, name string, err error) {
	if run, err = h.Folder.Root(); err == nil {
		name, err = filepath.Rel(h.Folder.Path(), path)
	}
	return run, name, err
}

// Create implements [Files].
func (h Held) Create(path string) (Output, error) {
	run, name, err := h.in(path)
	if err != nil {
		return nil, err
	}
	file, err := run.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file}, nil
}

// Mkdir implements [Files].
func (h Held) Mkdir(path string) error {
	run, name, err := h.in(path)
	if err != nil {
		return err
	}
	return run.Mkdir(name, 0o777)
}

// Rename implements [Files].
func (h Held) Rename(from, to string) error {
	run, name, err := h.in(from)
	if err != nil {
		return err
	}
	now, err := filepath.Rel(h.Folder.Path(), to)
	if err != nil {
		return err
	}
	return run.Rename(name, now)
}

// Remove implements [Files].
func (h Held) Remove(path string) error {
	run, name, err := h.in(path)
	if err != nil {
		return err
	}
	return run.Remove(name)
}

// SyncDir implements [Files].
func (h Held) SyncDir(path string) error {
	run, name, err := h.in(path)
	if err != nil {
		return err
	}
	dir, err := run.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
