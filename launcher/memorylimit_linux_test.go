package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/launcher/cli"
)

// In a memory cgroup that is too small the kernel kills ranks, not the launcher, which says why and
// what to do.
func TestMemoryLimit(t *testing.T) {
	cgroup := fmt.Sprintf("/sys/fs/cgroup/memory/spmoe-test-%d", os.Getpid())
	limit, list := filepath.Join(cgroup, "memory.limit_in_bytes"), filepath.Join(cgroup, "cgroup.procs")
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Skipf("no memory cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); os.Remove(cgroup) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	if err := os.WriteFile(limit, []byte(strconv.Itoa(45<<20)), 0); err != nil {
		t.Skipf("no memory can be limited here: %v", err)
	}
	for range 3 {
		p := prepare(t, "echo $$ > "+list+";", processRun(filepath.Join(t.TempDir(), "run"), "--steps", "20", "--spares", "1")...)
		code, text := p.begin(t).end(), p.log.String()+p.errOut.String()
		killed := p.ProcessState.Sys().(syscall.WaitStatus).Signaled()
		if killed && !strings.Contains(text, "ranks are processes") {
			t.Skip("the launcher alone needs more memory, as with the race detector")
		}
		if killed {
			t.Fatalf("the launcher was killed: %v\n%s", p.ProcessState, text)
		}
		switch {
		case code == cli.ExitUsage:
			t.Skipf("it does not start in so little memory: %s", text)
		case code != cli.ExitOK && code != 137:
			t.Errorf("exit code %d: %s", code, text)
		case code == 137 && !strings.Contains(text, "memory ran out 6 times: lower --batch or --seq"):
			t.Errorf("nothing says what to do: %s", text)
		case !strings.Contains(text, "probably by the kernel because memory ran out"):
			t.Skipf("the kernel killed none: %s", text)
		}
	}
}
