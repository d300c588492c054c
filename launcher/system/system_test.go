package system

import (
	"math"
	"testing"
	"testing/fstest"
)

const meminfo = `MemTotal:       24683520 kB
MemFree:        20000000 kB
MemAvailable:   22000000 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
odd
`

func TestMemory(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"machine":           {map[string]string{"proc/meminfo": meminfo}, Memory{24683520 << 10, 22000000 << 10}},
		"nothing known":     {nil, Memory{}},
		"garbage":           {map[string]string{"proc/meminfo": "MemTotal: lots kB\nMemAvailable:\n\x00\n"}, Memory{}},
		"group, no limit":   {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "max\n"}, Memory{24683520 << 10, 22000000 << 10}},
		"group, high limit": {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "1099511627776\n"}, Memory{24683520 << 10, 22000000 << 10}},
		"group": {map[string]string{
			"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "3221225472\n",
		}, Memory{8 * gib, 5 * gib}},
		"group with cached files": {map[string]string{
			"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "7516192768\n",
			"sys/fs/cgroup/memory.stat": "anon 1073741824\nfile 6442450944\ninactive_file 2147483648\nactive_file 2147483648\n",
		}, Memory{8 * gib, 5 * gib}},
		"group in a full machine": {map[string]string{
			"proc/meminfo": "MemTotal: 24683520 kB\nMemAvailable: 1048576 kB\n", "sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "0\n",
		}, Memory{8 * gib, gib}},
		"group beyond its limit": {map[string]string{
			"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "8589934593\n",
		}, Memory{8 * gib, 0}},
		"group alone": {map[string]string{"sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "3221225472\n"}, Memory{8 * gib, 5 * gib}},
	} {
		root := fstest.MapFS{}
		for path, content := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(content)}
		}
		if got := memory(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestResident(t *testing.T) {
	for content, want := range map[string]int64{"765 396 369 5 0 123 0\n": 396, "": 0, "765": 0, "a b c": 0} {
		if got := resident(fstest.MapFS{"proc/self/statm": &fstest.MapFile{Data: []byte(content)}}); got != want {
			t.Errorf("%q: %d pages, want %d", content, got, want)
		}
	}
	if got := resident(fstest.MapFS{}); got != 0 {
		t.Errorf("without statm: %d pages", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 350e6: "333.8 MiB", 1 << 30: "1 GiB",
		1342 << 30: "1.311 TiB", 3 << 50: "3 PiB", math.MaxInt64: "8 EiB", -5: "-5 B",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
