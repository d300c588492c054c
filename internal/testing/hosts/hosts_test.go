//go:build linux

package hosts

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
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
	case "send":
		err = send()
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

func send() error {
	c, err := net.Dial("tcp", "host1:7000")
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
	if out, err := as(c.Hosts[0].Command(t.Context(), os.Args[0]), "send").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := receiver.Wait(); err != nil {
		t.Fatal(err)
	}
}

// The kernel holds traffic back at a shaped link, at its rate, and nowhere else.
func TestRate(t *testing.T) {
	for _, rate := range []int64{0, 200e6} {
		c := New(t, 2, Link{Rate: rate})
		transfer(t, c)
		if got := c.Hosts[0].Sent(); got < megabytes*1e6 || got > megabytes*1.2e6 {
			t.Errorf("%d bytes went over the link, for %d MB", got, megabytes)
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
