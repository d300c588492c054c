package checkpoint

import (
	"os"
	"path/filepath"

	"spmoe/launcher/system"
)

// Held is the file system of a run folder that the job holds. An operation fails if the folder has
// lost its name or its lock. It takes place in the held folder, even if another one gets the name
// at that moment.
type Held struct{ Folder *system.FolderLock }

// NewHeld returns the file system of a folder that the job holds, or [Disk] if it is nil.
func NewHeld(folder *system.FolderLock) Files {
	if folder == nil {
		return Disk{}
	}
	return Held{folder}
}

// do calls f with the folder and the name of a path in it.
func (h Held) do(path string, f func(run *os.Root, name string) error) error {
	run, err := h.Folder.Root()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(h.Folder.Path(), path)
	if err != nil {
		return err
	}
	return f(run, name)
}

// Create implements [Files].
func (h Held) Create(path string) (out Output, err error) {
	err = h.do(path, func(run *os.Root, name string) error {
		file, err := run.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		out = &diskFile{File: file}
		return err
	})
	return out, err
}

// Mkdir implements [Files].
func (h Held) Mkdir(path string) error {
	return h.do(path, func(run *os.Root, name string) error { return run.Mkdir(name, 0o777) })
}

// Rename implements [Files].
func (h Held) Rename(from, to string) error {
	return h.do(from, func(run *os.Root, name string) error {
		now, err := filepath.Rel(h.Folder.Path(), to)
		if err != nil {
			return err
		}
		return run.Rename(name, now)
	})
}

// Remove implements [Files].
func (h Held) Remove(path string) error {
	return h.do(path, (*os.Root).Remove)
}

// SyncDir implements [Files].
func (h Held) SyncDir(path string) error {
	return h.do(path, func(run *os.Root, name string) error { return system.SyncFolder(run.Open(name)) })
}
