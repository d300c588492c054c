package system

// The memory limits of control groups. A limit holds for all groups below its own, so this process
// is bound by the limits of its group and of every ancestor. Source: cgroups(7), proc(5).

import (
	"io/fs"
	"path"
	"strings"
)

// groupLimit is the limit of a control group and what its processes use, in bytes.
type groupLimit struct{ limit, used int64 }

// groupFiles are the names of a control group's files in one version of the kernel's interface.
type groupFiles struct {
	limit, usage string
	cache        []string // rows of memory.stat: file pages that the kernel frees under pressure
}

var (
	groupV1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	groupV2 = groupFiles{"memory.max", "memory.current", []string{"inactive_file", "active_file"}}
)

// groupLimits returns the limits of this process's memory groups and of their ancestors.
func groupLimits(root fs.FS) (all []groupLimit) {
	for _, m := range groupMounts(root) {
		for dir := m.group; ; dir = path.Dir(dir) {
			if l, ok := m.files.read(root, path.Join(m.point, dir)); ok {
				all = append(all, l)
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return all
}

// read returns the limit in a group's folder. ok is false if there is none.
func (f groupFiles) read(root fs.FS, dir string) (l groupLimit, ok bool) {
	if l.limit = single(root, path.Join(dir, f.limit)); l.limit <= 0 {
		return l, false
	}
	l.used = single(root, path.Join(dir, f.usage))
	stat := table(root, path.Join(dir, "memory.stat"))
	for _, row := range f.cache {
		l.used -= min(stat[row], l.used)
	}
	return l, true
}

// groupMount is a mounted hierarchy of groups, and the group of this process in it.
type groupMount struct {
	point string // of the mount, without the leading slash
	group string // below it, from "/"
	files groupFiles
}

// groupMounts returns the hierarchies that limit memory: one of version 1, one of version 2, or
// both. Where the kernel lists none, it tries the usual place.
func groupMounts(root fs.FS) (all []groupMount) {
	v1, v2 := ownGroups(root)
	data, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(kind) < 3 {
			continue
		}
		point, top := strings.TrimPrefix(unescape.Replace(mount[4]), "/"), unescape.Replace(mount[3])
		switch options := "," + kind[2] + ","; {
		case kind[0] == "cgroup2":
			all = append(all, groupMount{point, below(top, v2), groupV2})
		case kind[0] == "cgroup" && strings.Contains(options, ",memory,"):
			all = append(all, groupMount{point, below(top, v1), groupV1})
		}
	}
	if all == nil {
		all = []groupMount{{"sys/fs/cgroup", "/", groupV2}, {"sys/fs/cgroup/memory", "/", groupV1}}
	}
	return all
}

// ownGroups returns the paths of this process's groups in the hierarchy of the memory controller of
// version 1 and in that of version 2.
func ownGroups(root fs.FS) (v1, v2 string) {
	data, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			v2 = fields[2]
		case strings.Contains(","+fields[1]+",", ",memory,"):
			v1 = fields[2]
		}
	}
	return v1, v2
}

// below returns the place of a group under a mount that shows the hierarchy from top on. A group
// outside of what is mounted, as some containers have, counts as the top.
func below(top, group string) string {
	if top == "/" {
		top = ""
	}
	rest, ok := strings.CutPrefix(group, top)
	if !ok || rest != "" && rest[0] != '/' || strings.Contains(rest, "/..") {
		return "/"
	}
	return path.Clean("/" + rest)
}

// unescape undoes the escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
