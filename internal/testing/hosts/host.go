//go:build linux

// What a test does with a host: run programs, read its counters, unplug it, kill it.

package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Host is one host of a cluster.
type Host struct {
	Name    string // host0, host1, ..., which all hosts can resolve
	Address string // IPv4, of its interface eth0

	cluster *Cluster
	spaces  *namespaces
	port    string // the switch's end of its link
}

// Command is like [exec.CommandContext] for a program on this host. Its process is the program
// itself, so signals reach it.
func (h *Host) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.cluster.path("enter"), append([]string{h.Name, program}, args...)...)
	cmd.WaitDelay = 10 * time.Second // its children may hold its output open
	return cmd
}

// Kill kills all processes on the host with SIGKILL and waits until they have ended. The host's
// kernel still closes their connections, which peers notice; Cut the host first to prevent that.
// Programs can be started on it again.
func (h *Host) Kill() {
	h.cluster.t.Helper()
	if err := h.spaces.kill(); err != nil {
		h.cluster.t.Fatalf("kill %s: %v", h.Name, err)
	}
}

// Cut unplugs the host from the switch: what it sends, and what is sent to it, is lost.
func (h *Host) Cut() {
	h.cluster.t.Helper()
	h.cluster.hub.run(h.cluster.t, "ip", "link", "set", h.port, "down")
}

// Sent returns the number of bytes that the host has sent over its link, including headers.
func (h *Host) Sent() int64 {
	h.cluster.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", h.spaces.pid))
	if err != nil {
		h.cluster.t.Fatalf("%s: %v", h.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		name, counters, _ := strings.Cut(line, ":")
		if fields := strings.Fields(counters); strings.TrimSpace(name) == "eth0" && len(fields) == 16 {
			sent, _ := strconv.ParseInt(fields[8], 10, 64)
			return sent
		}
	}
	h.cluster.t.Fatalf("%s has no counters of eth0:\n%s", h.Name, text)
	return 0
}

// plug connects the host to the switch by a link.
func (h *Host) plug() {
	t, hub := h.cluster.t, h.cluster.hub
	t.Helper()
	hub.run(t, "ip", "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.spaces.pid))
	// Without IPv6 addresses only the programs send packets.
	hub.run(t, "ip", "link", "set", h.port, "addrgenmode", "none", "master", "switch", "up")
	h.spaces.run(t, "ip", "link", "set", "eth0", "addrgenmode", "none", "up")
	h.spaces.run(t, "ip", "address", "add", h.Address+"/24", "dev", "eth0")
}
