//go:build linux

package hosts

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// role is the variable that makes the test program one of the programs which the tests run on
// hosts.
const role = "HOSTS_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "receive":
		err = receive()
	case "tcp", "udp":
		err = send(os.Getenv(role))
	case "abandon":
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func receive() error {
	l, err := net.Listen("tcp", ":7000")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

const megabytes = 4

func send(network string) error {
	c, err := net.Dial(network, "host1:7000")
	if err != nil {
		return err
	}
	defer c.Close()
	for range megabytes * 1000 {
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			return err
		}
	}
	return nil
}

// as makes the command play a role.
func as(cmd *exec.Cmd, name string) *exec.Cmd {
	cmd.Env = append(os.Environ(), role+"="+name)
	return cmd
}

// begin starts the command and returns its output behind the first line, which must be the one
// expected.
func begin(t *testing.T, cmd *exec.Cmd, first string) *bufio.Reader {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); err != nil || line != first+"\n" {
		t.Fatalf("%q, %v, want %q", line, err, first)
	}
	return out
}

// transfer sends some megabytes from host 0 to host 1.
func transfer(t *testing.T, c *Cluster) {
	t.Helper()
	receiver := as(c.Hosts[1].Command(t.Context(), os.Args[0]), "receive")
	begin(t, receiver, "ready")
	if out, err := as(c.Hosts[0].Command(t.Context(), os.Args[0]), "tcp").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := receiver.Wait(); err != nil {
		t.Fatal(err)
	}
}

// What is missing is named; whether it is a failure the environment says.
func TestLacks(t *testing.T) {
	for _, need := range []string{"", "1"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSeparate$", "-test.v")
		cmd.Env = append(os.Environ(), "PATH=", "SPMOE_NEED_HOSTS="+need)
		out, err := cmd.CombinedOutput()
		if (err != nil) != (need == "1") || !strings.Contains(string(out), "there can be no separate hosts") {
			t.Errorf("with SPMOE_NEED_HOSTS=%q: %v, %s", need, err, out)
		}
	}
}

// Each host has its own name, interfaces and shared memory, and the folder in which it was told to
// start.
func TestSeparate(t *testing.T) {
	before, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c := New(t, 2, Link{})
	for _, h := range c.Hosts {
		cmd := h.Command(t.Context(), "sh", "-c", `hostname; pwd; ls /sys/class/net | xargs; ls /dev/shm; touch "/dev/shm/$(hostname)"; sed -n '$p' /etc/hosts`)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf("%s\n%s\neth0 lo\n10.0.0.2 host1\n", h.Name, cmd.Dir); err != nil || string(out) != want {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	}
	if name, err := os.Hostname(); err != nil || name != before {
		t.Errorf("the machine's own name has become %q, %v", name, err)
	}
}

// The kernel holds traffic back at a shaped link, at its rate, and nowhere else.
func TestRate(t *testing.T) {
	for _, rate := range []int64{0, 200e6} {
		c := New(t, 2, Link{Rate: rate})
		transfer(t, c)
		for _, got := range []int64{c.Hosts[0].Sent(), c.Hosts[1].Received()} {
			if got < megabytes*1e6 || got > megabytes*1.2e6 {
				t.Errorf("%d bytes went over the link, for %d MB", got, megabytes)
			}
		}
		for _, out := range []string{
			c.Hosts[0].spaces.run(t, "tc", "-s", "qdisc", "show", "dev", "eth0"),
			c.hub.run(t, "tc", "-s", "qdisc", "show", "dev", "port1"),
		} {
			if strings.Contains(out, "tbf") != (rate > 0) || strings.Contains(out, "rate 200Mbit") != (rate > 0) {
				t.Errorf("a rate of %d bit/s: %s", rate, out)
			}
		}
		// The first link on the way is the one that holds back.
		out := c.Hosts[0].spaces.run(t, "tc", "-s", "qdisc", "show", "dev", "eth0")
		if held := strings.Contains(out, "overlimits ") && !strings.Contains(out, "overlimits 0 "); held != (rate > 0) {
			t.Errorf("a rate of %d bit/s: %s", rate, out)
		}
	}
}

// A host that is cut off gets nothing, and is reached again when it is mended.
func TestCut(t *testing.T) {
	c := New(t, 2, Link{})
	transfer(t, c)
	c.Hosts[1].Cut()
	before := c.Hosts[1].Received()
	if out, err := as(c.Hosts[0].Command(t.Context(), os.Args[0]), "udp").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := c.Hosts[1].Received() - before; got != 0 {
		t.Errorf("%d bytes came through", got)
	}
	c.Hosts[1].Mend()
	transfer(t, c)
}

// Killing a host ends whatever runs there, and nothing elsewhere.
func TestKill(t *testing.T) {
	c := New(t, 2, Link{})
	var commands []*exec.Cmd
	for _, h := range c.Hosts {
		cmd := h.Command(t.Context(), "sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo ready; wait")
		out := begin(t, cmd, "ready")
		commands = append(commands, cmd)
		if h == c.Hosts[1] {
			h.Kill()
			if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 { // its end says that nobody holds it open
				t.Errorf("%q, %v", rest, err)
			}
		}
	}
	err := commands[1].Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("a process of the killed host ends with %v", err)
	}
	if err := commands[0].Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of the other host: %v", err)
	}
	if out, err := c.Hosts[1].Command(t.Context(), "hostname").Output(); err != nil || string(out) != "host1\n" {
		t.Errorf("after the kill: %q, %v", out, err)
	}
}

// A test that is killed leaves no process behind.
func TestAbandon(t *testing.T) {
	if os.Getenv(role) == "abandon" {
		c := New(t, 1, Link{})
		cmd := c.Hosts[0].Command(t.Context(), "sh", "-c", "trap '' TERM HUP; echo ready; sleep 1000")
		cmd.Stdout = os.Stdout
		t.Fatal(cmd.Run())
	}
	if err := able(); err != nil {
		lacks(t, "%v", err)
	}
	cmd := as(exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAbandon$"), "abandon")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir()) // it cannot clean up
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out := begin(t, cmd, "ready")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(out); err != nil { // ends when the sleeper, which has the same output, is gone
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || complaint.Len() > 0 {
		t.Errorf("%v: %s", err, complaint.String())
	}
}
