package main

// What a run must keep to itself.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listening lists the sockets of a process that others can connect or send to.
func listening(t *testing.T, pid int) (all []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	mine := map[string]bool{}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Errorf("the files of process %d: %v", pid, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(proc + "fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.Trim(to, "socket:[]")] = true
		}
	}
	// Columns of proc(5): of TCP the state is the fourth, 0A while it listens; UDP sockets need not
	// listen; of Unix sockets the fourth is flags, and the inode the seventh.
	for name, inode := range map[string]int{"tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9, "unix": 6} {
		text, err := os.ReadFile(proc + "net/" + name)
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) <= inode || !mine[f[inode]] {
				continue
			}
			if strings.HasPrefix(name, "udp") || strings.HasPrefix(name, "tcp") && f[3] == "0A" || name == "unix" && f[3] == "00010000" {
				all = append(all, fmt.Sprintf("process %d: %s %s", pid, name, strings.TrimSpace(line)))
			}
		}
	}
	return all
}

// checkSecrets looks for the secret in what was printed and in all files below dir, with which
// others may do nothing.
func checkSecrets(t *testing.T, dir, printed string) {
	t.Helper()
	if strings.Contains(printed, canary) {
		t.Errorf("the secret is in the output: %s", printed)
	}
	for path, text := range files(t, dir) {
		if strings.Contains(path, canary) || strings.Contains(text, canary) {
			t.Errorf("the secret is in %s", path)
		}
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
