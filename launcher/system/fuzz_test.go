package system

import (
	"testing"
	"testing/fstest"
)

// Whatever the kernel's files say, memory is a size, with no more of it available than there is
// where both are known.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(meminfo), []byte("8589934592\n"), []byte("3221225472\n"), []byte("inactive_file 1073741824\n"))
	f.Add([]byte("MemTotal: 9223372036854775807 kB\nMemAvailable: -1 kB\n"), []byte("max"), []byte("-9223372036854775808"), []byte("inactive_file 9223372036854775807"))
	f.Fuzz(func(t *testing.T, info, limit, current, stat []byte) {
		m := memory(fstest.MapFS{
			"proc/meminfo": {Data: info}, "sys/fs/cgroup/memory.max": {Data: limit}, "sys/fs/cgroup/memory.current": {Data: current},
			"sys/fs/cgroup/memory.stat": {Data: stat}, "proc/self/statm": {Data: info},
		})
		if m.Total < 0 || m.Available < 0 {
			t.Errorf("%+v", m)
		}
	})
}
