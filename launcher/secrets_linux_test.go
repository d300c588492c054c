package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// canary is a secret that a run has in its environment and must keep to itself.
const canary = "canary-3f9a61c07b52"

// run of a launcher that is a process of its own, with secrets in its environment.
type watchedRun struct {
	out, errOut string
	sockets     []string // that the launcher and its ranks listened on
	code        int
}

// watch runs a command line with a umask, in folder dir, and calls do with the ranks' processes
// after the first step.
func watch(t *testing.T, dir string, do func(ranks []int), args ...string) watchedRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", `umask 077; exec "$@"`, "sh", self}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asLauncher+"=1", "SPMOE_CANARY_TOKEN="+canary, "AWS_SECRET_ACCESS_KEY="+canary, canary+"=1", "GOTRACEBACK=all")
	var got watchedRun
	var out lockedBuffer
	b := &beginning{do: func(ranks []int) {
		for _, pid := range append(ranks, cmd.Process.Pid) {
			got.sockets = append(got.sockets, listening(t, pid)...)
		}
		do(ranks)
	}}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &b.errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.MultiWriter(b, &out), stdout)
	cmd.Wait()
	if b.do != nil {
		t.Fatalf("no step was logged: %s", b.errOut.String())
	}
	got.out, got.errOut, got.code = out.String(), b.errOut.String(), cmd.ProcessState.ExitCode()
	return got
}

// listening lists the sockets of a process that others can connect or send to.
func listening(t *testing.T, pid int) (all []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	mine := map[string]bool{}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Errorf("the files of process %d: %v", pid, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(proc + "fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.Trim(to, "socket:[]")] = true
		}
	}
	// Columns of proc(5): of TCP the state is the fourth, 0A while it listens; UDP sockets need not
	// listen; of Unix sockets the fourth is flags, and the inode the seventh.
	for name, inode := range map[string]int{"tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9, "unix": 6} {
		text, err := os.ReadFile(proc + "net/" + name)
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) <= inode || !mine[f[inode]] {
				continue
			}
			if strings.HasPrefix(name, "udp") || strings.HasPrefix(name, "tcp") && f[3] == "0A" || name == "unix" && f[3] == "00010000" {
				all = append(all, fmt.Sprintf("process %d: %s %s", pid, name, strings.TrimSpace(line)))
			}
		}
	}
	return all
}

// The sockets of a process are found, so that it means something that a launcher has none.
func TestListening(t *testing.T) {
	var fds []int
	for _, family := range []int{syscall.AF_INET, syscall.AF_UNIX} {
		fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		fds = append(fds, fd)
	}
	before := len(listening(t, os.Getpid()))
	if err := syscall.Bind(fds[1], &syscall.SockaddrUnix{Name: filepath.Join(t.TempDir(), "socket")}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds { // the one without an address gets a free port
		if err := syscall.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := listening(t, os.Getpid()); len(got) != before+2 {
		t.Errorf("%d sockets listened before, and after two more: %q", before, got)
	}
}

// No launcher and no rank listens on a socket. Nothing of the environment gets into what a run
// prints or writes, of whatever end, and the user's umask says who may read that.
func TestNothingLeaks(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(ranks []int)
		more []string
		code int
	}{
		"whole":       {func([]int) {}, []string{"--steps", "80", "--set", "record_every=10", "--profile", "--cpuprofile", "cpu", "--save-every", "40"}, cli.ExitOK},
		"rank healed": {func(ranks []int) { syscall.Kill(ranks[2], syscall.SIGKILL) }, []string{"--steps", "40", "--spares", "1"}, cli.ExitOK},
		"rank killed": {func(ranks []int) { syscall.Kill(ranks[2], syscall.SIGKILL) }, []string{"--steps", "100000", "--restarts", "0"}, 137},
		"with stacks": {func(ranks []int) { syscall.Kill(ranks[1], syscall.SIGKILL) }, []string{"--steps", "100000", "--restarts", "0", "--get-stack-traces"}, 137},
		"rank ends":   {func(ranks []int) { syscall.Kill(ranks[3], syscall.SIGQUIT) }, []string{"--steps", "100000", "--restarts", "0"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			got := watch(t, dir, test.do, processRun(filepath.Join(dir, "run"), append(test.more, "--set", "log_every=1")...)...)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d: %s", got.code, test.code, got.errOut)
			}
			if len(got.sockets) > 0 {
				t.Errorf("sockets: %q", got.sockets)
			}
			if strings.Contains(got.out+got.errOut, canary) {
				t.Errorf("the secret is in the output: %s%s", got.out, got.errOut)
			}
			for path, text := range files(t, dir) {
				if strings.Contains(path, canary) || strings.Contains(plainText(t, text), canary) {
					t.Errorf("the secret is in %s", path)
				}
			}
			onlyMine(t, dir)
		})
	}
	refuse(t, cli.ExitUsage, []string{"train", "--token=" + canary}, "unknown flag --token")
	if got := launch("train", "--token="+canary); strings.Contains(got.errOut, canary) {
		t.Errorf("the value of an unknown flag is printed: %s", got.errOut)
	}
}

// plainText is what a file holds, unpacked if it is compressed.
func plainText(t *testing.T, text string) string {
	t.Helper()
	if !strings.HasPrefix(text, "\x1f\x8b") {
		return text
	}
	r, err := gzip.NewReader(bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(unpacked)
}

// onlyMine checks that others may do nothing with what is below dir.
func onlyMine(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
