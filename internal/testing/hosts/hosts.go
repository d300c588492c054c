//go:build linux

// Package hosts makes separate hosts on one machine, for tests of communication between hosts.
//
// A host is a set of namespaces: it has its own name, network, /dev/shm, /sys, /etc/hosts and
// System V memory. It shares files, process numbers, processors and memory with the machine. A link
// connects each host to a switch, and the machine's own network is not touched. The namespaces have
// no names. They vanish with the last process in them, which is when the test ends, in any way.
package hosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/internal/testing/need"
)

// Cluster is a set of hosts connected by one switch. Its methods and those of its hosts end the
// test if they fail.
type Cluster struct {
	Hosts []*Host

	t testing.TB
	// of scripts, the hosts' table of names and MPI's remains; all hosts see it
	folder string
	hub    *namespaces
}

// New starts n hosts, host0 to host<n-1>, which the end of the test kills. It skips the test if the
// machine cannot do it: it needs root and the commands ip, unshare and nsenter. With
// SPMOE_NEED_HOSTS=1 the test fails instead.
func New(t testing.TB, n int) *Cluster {
	t.Helper()
	if n < 1 || n > 200 {
		t.Fatalf("%d hosts: give 1 to 200", n)
	}
	if err := able(); err != nil {
		need.Missing(t, "there can be no separate hosts: %v", err)
	}
	c := &Cluster{t: t, folder: t.TempDir()}
	table := "127.0.0.1 localhost\n"
	for i := range n {
		h := &Host{Name: fmt.Sprintf("host%d", i), Address: fmt.Sprintf("10.0.0.%d", i+1), cluster: c, port: fmt.Sprintf("port%d", i)}
		table += h.Address + " " + h.Name + "\n"
		c.Hosts = append(c.Hosts, h)
	}
	c.write("hosts", table, 0o644)
	c.write("init", initScript, 0o755)
	c.write("enter", enterScript, 0o755)
	c.write("agent", agentScript, 0o755)
	c.hub = c.start("switch")
	c.hub.run(t, "ip", "link", "add", "switch", "up", "type", "bridge", "stp_state", "0")
	for _, h := range c.Hosts {
		h.spaces = c.start(h.Name)
		h.plug()
	}
	return c
}

// able returns the reason why this machine cannot make hosts, or nil.
func able() error {
	if os.Getuid() != 0 {
		return errors.New("it takes root")
	}
	for _, tool := range []string{"ip", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("there is no command %s: install iproute2 and util-linux", tool)
		}
	}
	if out, err := exec.Command("unshare", append(strings.Fields(unshared), "true")...).CombinedOutput(); err != nil {
		return fmt.Errorf("unshare: %w: %s", err, out)
	}
	return nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.folder, name) }

func (c *Cluster) write(name, text string, mode os.FileMode) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), mode); err != nil {
		c.t.Fatal(err)
	}
}
