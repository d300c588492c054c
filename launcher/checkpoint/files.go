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
	// Rename moves a file or a folder within its file system.
	Rename(from, to string) error
	// Remove deletes a file or an empty folder.
	Remove(path string) error
	// SyncDir returns when the names in a folder survive a power failure.
	SyncDir(path string) error
}

// Output is a file being written. After Sync its content survives a power failure.
type Output interface {
	io.Writer
	// Reserve takes space for a file of this size, if the file system can.
	Reserve(size int64)
	Sync() error
	Close() error
}

// Disk is the file system of this machine.
type Disk struct{}

// Create implements [Files].
func (Disk) Create(path string) (Output, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file}, nil
}

// Mkdir implements [Files].
func (Disk) Mkdir(path string) error { return os.Mkdir(path, 0o777) }

// Rename implements [Files].
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [Files].
func (Disk) Remove(path string) error { return os.Remove(path) }

// SyncDir implements [Files].
func (Disk) SyncDir(path string) error { return system.SyncFolder(os.Open(path)) }

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
