package system

// The lock of a folder that only one process may write to.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LockFile is the name of the file in a folder that is locked while a process writes there.
const LockFile = ".lock"

// FolderLock is the exclusive lock of a folder. It ends with its process at the latest, and child
// processes do not inherit it.
type FolderLock struct {
	folder  string
	file    *os.File
	created []string // folders that did not exist before, outermost first
}

// LockedError says that another process writes to a folder.
type LockedError struct{ Folder, Holder string }

// Error implements error.
func (e *LockedError) Error() string { return fmt.Sprintf("%s is in use by %s", e.Folder, e.Holder) }

// maxHolder is the maximum length of the description of a holder in bytes.
const maxHolder = 512

// LockFolder locks a folder, which it creates if necessary. The error is a [*LockedError] if
// another process, or another part of this one, holds the lock. File systems without locks count as
// unlocked.
func LockFolder(folder string) (*FolderLock, error) {
	l := &FolderLock{folder: folder}
	err := l.makeFolder()
	for err == nil && l.file == nil {
		err = l.try()
	}
	if err != nil {
		l.removeCreated()
		return nil, err
	}
	host, _ := os.Hostname()
	// On a full disk the holder stays unnamed, but the lock holds.
	if l.file.Truncate(0) == nil {
		fmt.Fprintf(l.file, "process %d on host %s\n", os.Getpid(), cmp.Or(host, "(unknown)"))
	}
	return l, nil
}

// makeFolder creates the folder and its missing parents, and notes which ones are new.
func (l *FolderLock) makeFolder() error {
	var missing []string
	for path := filepath.Clean(l.folder); ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
			break
		}
		missing = append(missing, path)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o777); err == nil {
			l.created = append(l.created, missing[i])
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// try takes the lock, or leaves file nil if the last holder has just removed its file.
func (l *FolderLock) try() error {
	file, err := OpenOwn(l.folder, LockFile, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, errReplaced) {
		return nil
	}
	if err != nil {
		return err
	}
	if lockExclusive(file) {
		holder, _ := io.ReadAll(io.LimitReader(file, maxHolder))
		text := strings.TrimSpace(strings.ToValidUTF8(string(holder), "?"))
		return errors.Join(&LockedError{l.folder, cmp.Or(text, "another process")}, file.Close())
	}
	mine, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if there, err := os.Lstat(filepath.Join(l.folder, LockFile)); err != nil || !os.SameFile(mine, there) {
		return file.Close()
	}
	l.file = file
	return nil
}

// New reports whether the lock's folder did not exist before.
func (l *FolderLock) New() bool { return len(l.created) > 0 }

// Release ends the lock. It removes the folders that it has created if they are empty. A nil lock
// is released already.
func (l *FolderLock) Release() error {
	if l == nil || l.file == nil {
		return nil
	}
	// The file is removed before it is unlocked: otherwise the next holder could lose it.
	err := errors.Join(os.Remove(l.file.Name()), l.file.Close())
	l.file = nil
	l.removeCreated()
	return err
}

func (l *FolderLock) removeCreated() {
	for i := len(l.created) - 1; i >= 0; i-- {
		os.Remove(l.created[i]) // it fails if something is in it, as it should
	}
}
