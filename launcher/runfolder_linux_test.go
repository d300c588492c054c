package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"spmoe/launcher/cli"
)

// readOnly returns a folder that this user cannot write to.
func readOnly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	mount(t, dir, unix.MS_RDONLY, "")
	return dir
}

// mount mounts a new file system in memory at a folder until the test ends. If it may not, the test
// passes or fails as root of a user namespace, or is skipped.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		if os.Getuid() != 0 {
			runAsRoot(t)
		}
		t.Skipf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
}

// runAsRoot runs this test as root of a user namespace, and ends it here.
func runAsRoot(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.As(err, new(*exec.ExitError)):
		t.Fatalf("as root of a user namespace: %v\n%s", err, out)
	case err != nil:
		t.Skipf("no user namespace to mount a file system in: %v", err)
	}
	t.Skipf("passed as root of a user namespace:\n%s", out)
}

// The launcher alone holds the lock of a run of processes: it ends with the launcher.
func TestRanksDoNotHoldTheLock(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	begun := &beginning{do: func(ranks []int) {
		for _, pid := range append(ranks, os.Getpid()) {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				t.Error(err)
			}
			holds := false
			for _, fd := range open {
				to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
				holds = holds || to == filepath.Join(out, ".lock")
			}
			if holds != (pid == os.Getpid()) {
				t.Errorf("process %d has the lock's file open: %t", pid, holds)
			}
		}
		refuse(t, cli.ExitUsage, processRun(out, "--steps", "40"), out+" is in use by process")
	}}
	code := run(context.Background(), processRun(out, "--steps", "40", "--set", "log_every=1"), begun, &begun.errOut)
	if errors := begun.errOut.String(); code != cli.ExitOK || begun.do != nil || strings.Contains(errors, "in use") {
		t.Errorf("exit code %d: %s", code, errors)
	}
}

// A folder that cannot be written to is refused before training starts, with advice that helps.
func TestUnwritableFolder(t *testing.T) {
	data, closed := text(t), readOnly(t)
	for name, args := range map[string][]string{
		"named":      {"--out", filepath.Join(closed, "run")},
		"inside":     {"--out", filepath.Join(closed, "a", "b")},
		"the folder": {"--out", closed},
		"compare":    {"compare", "--out", filepath.Join(closed, "run")},
		"working":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if args == nil {
				t.Chdir(closed)
			}
			if name != "compare" {
				args = tiny(data, args...)
			}
			refuse(t, cli.ExitUsage, args, "give --out a folder that you can write to")
		})
	}
}

// turns calls the next of its functions when a line has come that has the function's word.
type turns struct {
	words []string
	do    []func() error
	t     *testing.T
}

func (w *turns) Write(line []byte) (int, error) {
	if len(w.do) > 0 && bytes.Contains(line, []byte(w.words[0])) {
		if err := w.do[0](); err != nil {
			w.t.Error(err)
		}
		w.words, w.do = w.words[1:], w.do[1:]
	}
	return len(line), nil
}

// A run whose folder is renamed writes to no other folder that gets its name, and ends with 74. If
// its folder comes back, it goes on there.
func TestRunKeepsItsFolder(t *testing.T) {
	data := text(t)
	for _, kind := range []string{"goroutine", "process"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			succeed(t, tiny(data, "--steps", "4", "--save-every", "3", "--seed", "7", "--out", "other")...)
			args := tiny(data, "-np", "2", "--ranks", kind, "--steps", "200", "--save-every", "50", "--set", "keep=2", "--set", "log_every=1", "--out", "run", "--set", "save_retry=0s")
			var before map[string]string
			swap := func() error {
				err := errors.Join(os.Rename("run", "old"), os.Rename("other", "run"))
				before = files(t, "run")
				return err
			}
			got := launchTo(context.Background(), &turns{[]string{"step:"}, []func() error{swap}, t}, args...)
			if got.code != cli.ExitUnsaved || !strings.Contains(got.errOut, "run was moved, to "+filepath.Join(dir, "old")+": nothing is written there until it is moved back") {
				t.Errorf("exit code %d: %s", got.code, got.errOut)
			}
			same(t, files(t, "run"), before)

			if err := errors.Join(os.RemoveAll("old"), os.RemoveAll("run")); err != nil {
				t.Fatal(err)
			}
			away, back := func() error { return os.Rename("run", "old") }, func() error { return os.Rename("old", "run") }
			if got := launchTo(context.Background(), &turns{[]string{"step:", "was not saved"}, []func() error{away, back}, t}, args...); got.code != cli.ExitOK {
				t.Errorf("moved back: exit code %d: %s", got.code, got.errOut)
			}
		})
	}
}
