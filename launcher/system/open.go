package system

// Files that a program keeps in a folder of its own. Others may have put a link, a pipe or a device
// in their place.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// errReplaced says that a name has changed its file between two looks.
var errReplaced = errors.New("it was replaced while it was opened")

// OpenOwn opens or creates the regular file name in folder, with flags as for [os.OpenFile]. It
// refuses anything else at once, and never follows a link.
func OpenOwn(folder, name string, flags int) (*os.File, error) {
	root, err := OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return OpenIn(root, name, flags)
}

// OpenIn is [OpenOwn] for an open folder.
func OpenIn(root *os.Root, name string, flags int) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	before, err := root.Lstat(name)
	if err == nil {
		err = regular(path, before)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, err
	}
	// Another file may have replaced it between the two calls.
	after, err := file.Stat()
	if err == nil {
		err = regular(path, after)
	}
	if err == nil && before != nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s: %w", path, errReplaced)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// OpenRoot is [os.OpenRoot]. It refuses what is not a folder at once: opening a pipe would wait for
// its writer.
func OpenRoot(path string) (*os.Root, error) {
	if err := isFolder(path); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// ReadDir is [os.ReadDir]. It refuses what is not a folder as OpenRoot does.
func ReadDir(path string) ([]os.DirEntry, error) {
	if err := isFolder(path); err != nil {
		return nil, err
	}
	return os.ReadDir(path)
}

func isFolder(path string) error {
	stat, err := os.Stat(path)
	if err == nil && !stat.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	return err
}

// OwnFolder returns the path of the folder name in folder, which it creates if necessary. It
// refuses a link and anything else that is not a folder.
func OwnFolder(folder, name string) (path string, err error) {
	path = filepath.Join(folder, name)
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	stat, err := os.Lstat(path)
	if err == nil && !stat.IsDir() {
		err = fmt.Errorf("%s: not a folder (its mode is %v): move it away", path, stat.Mode())
	}
	return path, err
}
