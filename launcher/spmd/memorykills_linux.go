package spmd

// Ranks that the kernel kills because memory has run out.

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryKills counts the processes that the kernel has killed for memory.
type memoryKills struct {
	counters []string // files with a line "oom_kill N"
	seen     int64
}

// newMemoryKills returns the counter of this machine and of this process's memory cgroup.
func newMemoryKills() *memoryKills {
	k := &memoryKills{counters: append([]string{"/proc/vmstat"}, cgroupCounters("/proc/self/cgroup", "/sys/fs/cgroup")...)}
	k.reset()
	return k
}

// cgroupCounters returns the files that may hold the count of a memory cgroup, of either version.
func cgroupCounters(list, root string) (files []string) {
	text, _ := os.ReadFile(list)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		switch {
		case len(parts) < 3:
		case parts[1] == "":
			files = append(files, filepath.Join(root, parts[2], "memory.events"))
		case parts[1] == "memory":
			files = append(files, filepath.Join(root, "memory", parts[2], "memory.oom_control"))
		}
	}
	return files
}

// total returns the sum of all counters that can be read.
func (k *memoryKills) total() (sum int64) {
	for _, path := range k.counters {
		text, _ := os.ReadFile(path)
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if number, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
				n, _ := strconv.ParseInt(number, 10, 64)
				sum += n
			}
		}
	}
	return sum
}

// killed reports whether the kernel has killed a process for memory that was not counted yet. The
// kernel counts before it kills.
func (k *memoryKills) killed() bool {
	if k == nil || k.total() <= k.seen {
		return false
	}
	k.seen++
	return true
}

// reset forgets the processes that were killed so far.
func (k *memoryKills) reset() {
	if k != nil {
		k.seen = k.total()
	}
}
