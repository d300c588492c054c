package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A limit on address space is an error in one line, not the runtime's stack trace.
func TestAddressSpace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data := text(t)
	for name, c := range map[string]struct {
		kilobytes, args string
	}{
		"goroutines": {"2100000", "-np 8 train --data " + data},
		"processes":  {"3000000", "-np 2 train --ranks process --data " + data},
	} {
		// The race detector alone needs terabytes, and says so.
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -v "$0" && exec "$@"`, c.kilobytes, self}, strings.Fields(c.args)...)...)
		cmd.Env, cmd.Dir = append(os.Environ(), asLauncher+"=1"), t.TempDir()
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "ThreadSanitizer") {
			t.Skip("the race detector needs more")
		}
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), "of address space, but needs about") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v:\n%.2000s", name, err, out)
		}
	}
}
