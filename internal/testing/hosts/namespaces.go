//go:build linux

// The namespaces of a host, and the process that keeps them.

package hosts

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

//go:embed init.sh
var initScript string

//go:embed enter.sh
var enterScript string

const unshared = "--net --uts --ipc --mount"

// namespaces live as long as their first process, which reads commands from a pipe. The kernel
// closes the pipe when the test process dies, even if it is killed. Then the first process kills
// all others and ends.
type namespaces struct {
	pid     int
	orders  io.WriteCloser
	answers *bufio.Reader
}

// start creates the namespaces of one host, without links to the outside.
func (c *Cluster) start(name string) *namespaces {
	c.t.Helper()
	var complaint strings.Builder
	first := exec.Command("unshare", append(strings.Fields(unshared), c.path("init"), name, c.path("hosts"))...)
	first.Stderr = &complaint
	orders, err := first.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	answers, err := first.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		c.t.Fatal(err)
	}
	n := &namespaces{pid: first.Process.Pid, orders: orders, answers: bufio.NewReader(answers)}
	c.t.Cleanup(func() {
		orders.Close()
		if err := first.Wait(); err != nil {
			c.t.Errorf("%s: %v: %s", name, err, complaint.String())
		}
	})
	if err := n.done(); err != nil {
		c.t.Fatalf("%s does not start: %v", name, err)
	}
	c.write(name, strconv.Itoa(n.pid), 0o644)
	return n
}

// done waits for the answer to a command.
func (n *namespaces) done() error {
	if answer, err := n.answers.ReadString('\n'); err != nil || answer != "done\n" {
		return fmt.Errorf("its first process says %q, %w", answer, err)
	}
	return nil
}

// kill kills all processes except the first, and waits until they have ended.
func (n *namespaces) kill() error {
	if _, err := fmt.Fprintln(n.orders, "kill"); err != nil {
		return err
	}
	return n.done()
}

// run runs a command of the machine in the network of the namespaces, and returns its output.
func (n *namespaces) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(n.pid), "--net", "--", name}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
