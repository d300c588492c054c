package checkpoint

// The file operations of writing, behind an interface. Tests record them, stop them anywhere and
// let them fail.

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"spmoe/launcher/system"
)

// Files is the file system that checkpoints are written to. [Disk] is the real one.
type Files interface {
	// Create creates a file, which must not exist.
	Create(path string) (Output, error)
	// Mkdir creates one folder, which must not exist.
	Mkdir(path string) error
	// Rename gives a file or a folder another name in the same folder.
	Rename(from, to string) error
	// Remove deletes a file or an empty folder.
	Remove(path string) error
	// SyncDir returns when the names in a folder survive a power failure.
	SyncDir(path string) error
}

// Output is a file being written. After Sync its content survives a power failure.
type Output interface {
	io.Writer
	Sync() error
	Close() error
}

// Disk is the file system of this machine. With a folder, which is that of a run and held by the
// job, an operation fails if the folder has lost its name or its lock. It takes place in the held
// folder, even if another one gets the name at that moment.
type Disk struct{ Folder *system.FolderLock }

// do calls f with a folder that is open and the name of a path in it.
func (d Disk) do(path string, f func(in *os.Root, name string) error) error {
	if d.Folder == nil {
		in, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			return err
		}
		defer in.Close()
		return f(in, filepath.Base(path))
	}
	run, err := d.Folder.Root()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(d.Folder.Path(), path)
	if err != nil {
		return err
	}
	return f(run, name)
}

// Create implements [Files].
func (d Disk) Create(path string) (out Output, err error) {
	err = d.do(path, func(in *os.Root, name string) (err error) {
		out, err = in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return err
	})
	return out, err
}

// Mkdir implements [Files].
func (d Disk) Mkdir(path string) error {
	return d.do(path, func(in *os.Root, name string) error { return in.Mkdir(name, 0o777) })
}

// Rename implements [Files].
func (d Disk) Rename(from, to string) error {
	return d.do(from, func(in *os.Root, name string) error {
		return in.Rename(name, filepath.Join(filepath.Dir(name), filepath.Base(to)))
	})
}

// Remove implements [Files].
func (d Disk) Remove(path string) error { return d.do(path, (*os.Root).Remove) }

// SyncDir implements [Files].
func (d Disk) SyncDir(path string) error {
	if d.Folder == nil {
		return system.SyncFolder(os.Open(path))
	}
	return d.do(path, func(in *os.Root, name string) error { return system.SyncFolder(in.Open(name)) })
}

// removeAll deletes a file, or a folder with its content. A missing path is not an error.
func removeAll(fs Files, path string) error {
	stat, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := removeAll(fs, filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return fs.Remove(path)
}
