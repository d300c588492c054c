package system

import (
	"testing"
	"testing/fstest"
)

// A limit binds all groups below it, whatever the version of the interface and wherever the groups
// are mounted.
func TestGroupLimits(t *testing.T) {
	const mib = 1 << 20
	const v1 = "31 23 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
	const v2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	const slice = "sys/fs/cgroup/system.slice/"
	for name, c := range map[string]struct {
		mounts, group string
		files         map[string]string
		total, free   int64 // in MiB
	}{
		"systemd-run": {v2, "0::/system.slice/run-7.scope\n", map[string]string{
			slice + "run-7.scope/memory.max": "314572800\n", slice + "run-7.scope/memory.current": "104857600\n", slice + "memory.max": "max\n",
		}, 300, 200},
		"the parent's limit": {v2, "0::/system.slice/slurmstepd.scope/job_5/step_0\n", map[string]string{
			slice + "slurmstepd.scope/job_5/memory.max": "1073741824", slice + "slurmstepd.scope/job_5/memory.current": "209715200",
			slice + "slurmstepd.scope/job_5/step_0/memory.max": "max", slice + "slurmstepd.scope/job_5/step_0/memory.current": "104857600",
		}, 1024, 824},
		"the tightest of several": {v2, "0::/a/b\n", map[string]string{
			"sys/fs/cgroup/a/memory.max": "1073741824", "sys/fs/cgroup/a/memory.current": "1063256064",
			"sys/fs/cgroup/a/b/memory.max": "524288000", "sys/fs/cgroup/a/b/memory.current": "0",
		}, 500, 10},
		"cached files can be freed": {v2, "0::/a\n", map[string]string{
			"sys/fs/cgroup/a/memory.max": "524288000", "sys/fs/cgroup/a/memory.current": "419430400",
			"sys/fs/cgroup/a/memory.stat": "anon 104857600\nfile 314572800\ninactive_file 209715200\nactive_file 104857600\n",
		}, 500, 400},
		"private group of a container": {v2, "0::/\n", map[string]string{
			"sys/fs/cgroup/memory.max": "524288000", "sys/fs/cgroup/memory.current": "104857600",
		}, 500, 400},
		"group outside of what is mounted": {v2, "0::/../../job\n", map[string]string{
			"sys/fs/cgroup/memory.max": "524288000", "sys/fs/cgroup/memory.current": "104857600",
		}, 500, 400},
		"mount of a part": {"31 23 0:28 /docker/9f /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/9f/child\n", map[string]string{
			"sys/fs/cgroup/child/memory.max": "524288000", "sys/fs/cgroup/child/memory.current": "104857600",
		}, 500, 400},
		"other mount point": {`31 23 0:28 / /mnt/control\040groups rw - cgroup2 cgroup2 rw` + "\n", "0::/a\n", map[string]string{
			"mnt/control groups/a/memory.max": "524288000",
		}, 500, 500},
		"version 1": {v1, "4:memory:/slurm/uid_0/job_5\n1:cpu:/\n0::/\n", map[string]string{
			"sys/fs/cgroup/memory/slurm/uid_0/job_5/memory.limit_in_bytes": "314572800", "sys/fs/cgroup/memory/slurm/uid_0/job_5/memory.usage_in_bytes": "209715200",
			"sys/fs/cgroup/memory/slurm/uid_0/job_5/memory.stat": "cache 9\ntotal_inactive_file 104857600\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":         "9223372036854771712",
		}, 300, 200},
		"version 1 for memory, 2 for others": {v2[:len(v2)-1] + "\n" + v1, "4:cpu,memory:/job\n0::/\n", map[string]string{
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "314572800",
		}, 300, 300},
		"no limit": {v1, "4:memory:/job\n", map[string]string{"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712"}, 2048, 1024},
		"garbage":  {"a b - c\n - cgroup2\n31 23 0:28 / /sys rw - cgroup2 x y\n", "::\n0\nx\n", nil, 2048, 1024},
	} {
		root := fstest.MapFS{
			"proc/meminfo":        {Data: []byte("MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")},
			"proc/self/mountinfo": {Data: []byte("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + c.mounts)},
			"proc/self/cgroup":    {Data: []byte(c.group)},
		}
		for path, content := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(content)}
		}
		if got, want := memory(root), (Memory{c.total * mib, c.free * mib}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
