package spmd

// Processes whose cgroup is frozen. The kernel shows them as asleep in cgroups of version 2, and as
// stuck in those of version 1 (see checkStuck).

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// frozenEvery is the time between two looks at the cgroup of a process that uses no processor.
const frozenEvery = time.Second

// frozen reports whether the cgroup of a process is frozen.
func frozen(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			events, err := os.ReadFile(filepath.Join(root, path, "cgroup.events"))
			if err == nil && bytes.Contains(events, []byte("frozen 1")) {
				return true
			}
		}
	}
	return false
}

// looksFrozen reports whether a process that has used no processor for a while is frozen.
func (w *processWatch) looksFrozen(pid int, now time.Time, silence time.Duration) bool {
	if now.Sub(w.idle) < silence || now.Sub(w.looked) < frozenEvery {
		return false
	}
	w.looked = now
	return frozen(pid)
}
