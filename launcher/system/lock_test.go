package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// One holder at a time; the other is told who it is. Nothing is left of a lock that is released.
func TestLockFolder(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "runs", "a")
	first, err := LockFolder(run)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockFolder(run)
	if locked := (*LockedError)(nil); !errors.As(err, &locked) || locked.Folder != run || !strings.Contains(locked.Holder, fmt.Sprintf("process %d on host ", os.Getpid())) {
		t.Errorf("error %v", err)
	}
	if err := first.Release(); err != nil || !first.New() {
		t.Errorf("error %v, new %t", err, first.New())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}

	// What the holder has written stays, and so does the file of a holder that was killed.
	if err := os.MkdirAll(run, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, LockFile), []byte("process 1 on host x\n and much more text than the next"), 0o666); err != nil {
		t.Fatal(err)
	}
	again, err := LockFolder(run)
	if err != nil || again.New() {
		t.Fatalf("error %v, new %t", err, again.New())
	}
	text, err := os.ReadFile(filepath.Join(run, LockFile))
	if err != nil || strings.Contains(string(text), "much more") {
		t.Errorf("the file has %q (%v)", text, err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(run); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

// However many take turns at it, never two hold it.
func TestLockIsExclusive(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	var holders sync.Mutex
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for taken := 0; taken < 20; {
				l, err := LockFolder(run)
				if errors.As(err, new(*LockedError)) || errors.Is(err, os.ErrNotExist) { // the last holder has just removed the folder
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				taken++
				if !holders.TryLock() {
					t.Error("two hold the lock")
					return
				}
				holders.Unlock()
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// A file of one's own is a regular file in the folder, or an error at once.
func TestOpenOwn(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	victim := filepath.Join(other, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o666), os.Symlink(victim, filepath.Join(dir, "link")), os.Symlink("own", filepath.Join(dir, "inside")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666), os.Mkdir(filepath.Join(dir, "folder"), 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []int{os.O_RDONLY, os.O_WRONLY | os.O_CREATE | os.O_APPEND, os.O_RDWR | os.O_CREATE | os.O_TRUNC} {
		for _, name := range []string{"link", "inside", "pipe", "folder", "../" + filepath.Base(other) + "/victim"} {
			if f, err := OpenOwn(dir, name, flags); err == nil {
				t.Errorf("%s was opened with flags %#x", name, flags)
				f.Close()
			}
		}
	}
	f, err := OpenOwn(dir, "own", os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Error(err)
	}
	f.Close()
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file outside holds %q (%v)", text, err)
	}
}
