package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// If other programs take the memory of the cgroup, the kernel kills ranks, not the launcher. That
// replaces them, or says why it ends and what to do.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	const limit = 160 << 20
	cgroup := fmt.Sprintf("/sys/fs/cgroup/memory/spmoe-test-%d", os.Getpid())
	list := filepath.Join(cgroup, "cgroup.procs")
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Skipf("no memory cgroup can be made here: %v", err)
	}
	t.Cleanup(func() { within(func() bool { return os.Remove(cgroup) == nil }) })
	if err := os.WriteFile(filepath.Join(cgroup, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Skipf("no memory can be limited here: %v", err)
	}
	p := prepare(t, "echo $$ > "+list+";", processRun(filepath.Join(t.TempDir(), "run"), "--steps", "100000", "--set", "log_every=1", "--spares", "1")...).begin(t)
	await(t, "a step", func() bool { return strings.Contains(p.log.String(), "step: ") })
	// Each of these holds what has no line until its pipe is closed, and less than a rank does.
	hogs := `echo $$ > "$0"; for i in 1 2 3 4 5 6 7 8; do head -c "$1" /dev/zero | tail | sleep 3 & done; wait`
	hog := exec.Command("sh", "-c", hogs, list, strconv.Itoa(limit/8))
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a rank that the kernel killed", func() bool {
		return strings.Contains(p.errOut.String(), "probably by the kernel because memory ran out")
	})
	hog.Wait()
	p.Process.Signal(syscall.SIGINT)
	code, said := p.end(), p.errOut.String()
	if gaveUp := strings.Contains(said, "memory ran out 6 times: lower --batch or --seq"); code != cli.ExitInterrupted && (code != 137 || !gaveUp) {
		t.Errorf("exit code %d: %s", code, said)
	}
}
