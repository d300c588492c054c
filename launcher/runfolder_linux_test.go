package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"spmoe/launcher/cli"
)

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

// A run whose folder is renamed writes to no other folder that gets its name, and ends with 74. If
// its folder comes back, it goes on there.
func TestRunKeepsItsFolder(t *testing.T) {
	data, dir := text(t), t.TempDir()
	t.Chdir(dir)
	args := tiny(data, "-np", "2", "--steps", "20", "--save-every", "9", "--set", "keep=2", "--out", "run", "--set", "save_retry=0s")
	move := func(line, from, to string) *watcher {
		return &watcher{[]string{line}, func() {
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
			}
		}}
	}
	succeed(t, tiny(data, "--steps", "4", "--save-every", "3", "--seed", "7", "--out", "other")...)
	before := files(t, "other")
	swap := io.MultiWriter(move("step:", "run", "old"), move("step:", "other", "run"))
	got := launchTo(t.Context(), swap, append(args, "--ranks", "process")...)
	if got.code != cli.ExitUnsaved || !strings.Contains(got.errOut, "run was moved or removed: nothing is written there until it is moved back") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	same(t, files(t, "run"), before)

	if err := errors.Join(os.RemoveAll("old"), os.RemoveAll("run")); err != nil {
		t.Fatal(err)
	}
	back := io.MultiWriter(move("step:", "run", "old"), move("was not saved", "old", "run"))
	if got := launchTo(t.Context(), back, args...); got.code != cli.ExitOK {
		t.Errorf("moved back: exit code %d: %s", got.code, got.errOut)
	}
}
