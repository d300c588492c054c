package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// A limit on address space is an error in one line, not the runtime's stack trace. The race detector
// alone needs terabytes, and says so.
func TestAddressSpace(t *testing.T) {
	t.Parallel()
	data := text(t)
	for kilobytes, args := range map[int]string{2_100_000: "-np 8 train --data " + data, 3_000_000: "-np 2 train --ranks process --data " + data} {
		p := prepare(t, fmt.Sprintf("ulimit -v %d &&", kilobytes), strings.Fields(args)...)
		p.Dir = t.TempDir()
		code, said := p.begin(t).end(), p.errOut.String()
		if strings.Contains(said, "ThreadSanitizer") {
			t.Skip("the race detector needs more")
		}
		if code != cli.ExitUsage || !strings.Contains(said, "of address space, but needs about") || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit code %d:\n%.2000s", args, code, said)
		}
	}
}

// A limit on the threads of a user is an error in one line, not the stacks of each process. It does
// not hold for root, so that root becomes another user.
func TestThreads(t *testing.T) {
	self, err := os.Open("/proc/self/exe") // its folder may be root's
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	// dash and bash have different letters for this limit.
	cmd := exec.Command("sh", "-c", `{ ulimit -p 30 2>/dev/null || ulimit -u 30; } && exec /proc/self/fd/3 -np 4 train --ranks process`)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = append(os.Environ(), asLauncher+"=1"), dir, []*os.File{self}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitUsage || !strings.Contains(string(out), "may have 30 threads") || !strings.Contains(string(out), "ulimit -u") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v:\n%.2000s", err, out)
	}
}
