package system

// The lock of a folder that only one job may write to, and the folder itself: it is held open, so
// that another folder that gets its name is not mistaken for it.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// LockFile is the name of the file in a folder that is locked while a process writes there.
const LockFile = ".lock"

// FolderLock is the exclusive lock of a folder. It ends with its process at the latest, and child
// processes do not inherit it. They know the folder by the identity of the locked file.
type FolderLock struct {
	folder   string
	file     *os.File // nil: another process has the lock, or none
	identity string   // of the locked file; empty: unknown
	unlocked error    // why the file system cannot lock; nil: it can
	created  []string // folders that did not exist before, outermost first

	mu   sync.Mutex // guards the next
	root *os.Root   // the folder; nil: not found yet
}

// LockedError says that another process writes to a folder.
type LockedError struct{ Folder, Holder string }

// Error implements error.
func (e *LockedError) Error() string { return fmt.Sprintf("%s is in use by %s", e.Folder, e.Holder) }

// maxHolder is the maximum length of the description of a holder in bytes.
const maxHolder = 512

// LockFolder locks a folder, which it creates if necessary. The error is a [*LockedError] if
// another process, or another part of this one, holds the lock. [FolderLock.Unlocked] tells of a
// file system without locks, where the folder is held all the same.
func LockFolder(folder string) (*FolderLock, error) {
	l := &FolderLock{folder: folder}
	err := l.makeFolder()
	for err == nil && l.file == nil {
		err = l.try()
	}
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		if l.file != nil {
			l.file.Close()
		}
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
			if err := SyncFolder(os.Open(filepath.Dir(missing[i]))); err != nil {
				return err
			}
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
	held, err := lockExclusive(file)
	if held {
		holder, _ := io.ReadAll(io.LimitReader(file, maxHolder))
		text := strings.TrimSpace(strings.ToValidUTF8(string(holder), "?"))
		return errors.Join(&LockedError{l.folder, cmp.Or(text, "another process")}, file.Close())
	}
	l.unlocked = err
	mine, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if there, err := os.Lstat(filepath.Join(l.folder, LockFile)); err != nil || !os.SameFile(mine, there) {
		return file.Close()
	}
	l.file, l.identity = file, identityOf(mine)
	return nil
}

// HoldFolder returns the folder that another process of the job has locked. identity is that of its
// lock. If it is empty, no lock is known, and the folder is the one that has the name now.
func HoldFolder(folder, identity string) (*FolderLock, error) {
	l := &FolderLock{folder: folder, identity: identity}
	if identity != "" {
		return l, nil // if it is not in its place now, it may come back
	}
	return l, l.Check()
}

// Path returns the folder's path, as it was given.
func (l *FolderLock) Path() string { return l.folder }

// Identity names the locked file for [HoldFolder] in other processes of this machine, as long as
// the lock is held. The identity of a nil lock, which is no lock, is empty.
func (l *FolderLock) Identity() string {
	if l == nil {
		return ""
	}
	return l.identity
}

// Unlocked says why the folder's file system cannot lock, or returns nil: then two jobs that are
// given the same folder are not kept apart.
func (l *FolderLock) Unlocked() error { return l.unlocked }

// Check returns an error if the folder does not have its name any more, or if its lock is gone:
// both may belong to another job by now. It says what to do. A nil lock holds nothing, and has
// nothing to check.
func (l *FolderLock) Check() error {
	if l == nil {
		return nil
	}
	_, err := l.Root()
	return err
}

// Root returns the folder after a [FolderLock.Check]. What is done in it is done there, whatever
// gets its name meanwhile. The caller must not close it.
func (l *FolderLock) Root() (*os.Root, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.root == nil {
		root, err := os.OpenRoot(l.folder)
		if err == nil && l.locked(root) != nil {
			err = errors.Join(l.away(), root.Close())
		} else if errors.Is(err, fs.ErrNotExist) && l.identity != "" {
			err = l.away()
		}
		if err != nil {
			return nil, err
		}
		l.root = root
	}
	mine, err := l.root.Stat(".")
	if err != nil {
		return nil, err
	}
	switch there, err := os.Stat(l.folder); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there):
		return nil, l.away()
	case err != nil:
		return nil, err
	}
	return l.root, l.locked(l.root)
}

// locked returns an error unless the lock in an open folder is this one.
func (l *FolderLock) locked(root *os.Root) error {
	if l.identity == "" {
		return nil
	}
	there, err := root.Lstat(LockFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && identityOf(there) == l.identity {
		return err
	}
	return fmt.Errorf("the lock of %s, its file %s, was removed: another job may write there by now, so this one writes nothing there any more", l.folder, LockFile)
}

// away is the error of a folder that does not have its name any more.
func (l *FolderLock) away() error {
	return fmt.Errorf("%s was moved or removed: nothing is written there until it is moved back", l.folder)
}

// New reports whether the lock's folder did not exist before.
func (l *FolderLock) New() bool { return len(l.created) > 0 }

// Release ends the lock. It removes the folders that it has created if they are empty. If the
// folder does not have its name any more, it removes nothing. A nil lock is released already.
func (l *FolderLock) Release() (err error) {
	if l == nil || l.file == nil && l.root == nil {
		return nil
	}
	away := l.Check()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		// The file is removed before it is unlocked: otherwise the next holder could lose it.
		if l.root != nil && l.locked(l.root) == nil {
			err = l.root.Remove(LockFile)
		}
		err = errors.Join(err, l.file.Close())
		l.file = nil
	}
	if l.root != nil {
		err = errors.Join(err, l.root.Close())
		l.root = nil
	}
	if away == nil {
		l.removeCreated()
	}
	return err
}

func (l *FolderLock) removeCreated() {
	for i := len(l.created) - 1; i >= 0; i-- {
		os.Remove(l.created[i]) // it fails if something is in it, as it should
	}
}
