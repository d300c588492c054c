package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spmoe/internal/fault"
	"spmoe/launcher/cli"
)

// pty is a pseudo terminal and what was written to it.
type pty struct {
	*os.File // that a program writes to
	master   *os.File
	text     lockedBuffer
	ended    chan struct{}
}

// openPTY makes a terminal of some columns. look is called with everything that has come.
func openPTY(t *testing.T, columns uint16, look func(text string)) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals: %v", err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{File: slave, master: master, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil { // nobody has it open any more
				return
			}
			p.text.Write(b[:n])
			look(p.text.String())
		}
	}()
	return p
}

// all closes the terminal and returns all that was written to it, with the line ends of a pipe.
func (p *pty) all() string {
	p.File.Close()
	<-p.ended
	p.master.Close()
	return strings.ReplaceAll(p.text.String(), "\r\n", "\n")
}

// A run on a terminal shows its progress below its log, also once another process has become the
// one that reports. Interrupted, it ends with the log alone.
func TestLiveView(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := false
	terminal := openPTY(t, 90, func(text string) {
		_, after, healed := strings.Cut(text, "launcher: all ranks continue after step")
		if !seen && healed && strings.Contains(after, "░") && strings.Contains(after, " left  ") && strings.Contains(after, "  loss ") {
			seen = true
			cancel()
		}
	})
	args := tiny(data, "-np", "2", "--ranks", "process", "--steps", "1000000", "--set", "log_every=100", "--out", "run")
	die := fault.Order{Action: fault.Kill, Place: fault.AfterStep, Count: 20}
	code := launchTrain(ctx, args, func(rank int, generation uint32) string {
		if rank == 0 && generation == 0 {
			return die.String()
		}
		return ""
	}, terminal.File, terminal.File)
	all := terminal.all()
	if !seen || code != cli.ExitInterrupted {
		t.Fatalf("exit code %d, no progress in\n%s", code, all)
	}
	if last := all[strings.LastIndex(all, "\x1b[J"):]; strings.Contains(last, "░") {
		t.Errorf("it ends with %q", last)
	}
	for _, want := range []string{"spmoe: debug", "validation after step 0", "saved ", "interrupted after step"} {
		if n := strings.Count(all, want); n != 1 {
			t.Errorf("%q is there %d times, want 1:\n%s", want, n, all)
		}
	}
}

// A terminal that cannot move its cursor, and --plain, have the log alone, and a pipe has no
// control character in it.
func TestPlainLog(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for name, args := range map[string][]string{"dumb": nil, "xterm": {"--plain", "--color", "never"}} {
		t.Setenv("TERM", name)
		terminal := openPTY(t, 200, func(string) {})
		code := run(t.Context(), tiny(data, append(args, "--out", name)...), terminal.File, terminal.File)
		all := terminal.all()
		if code != cli.ExitOK || strings.Count(all, "\nstep: ") != 6 || !strings.Contains(all, "\ndone: 6 steps") || strings.ContainsAny(all, "░\x1b") {
			t.Errorf("%s: exit code %d:\n%q", name, code, all)
		}
	}
	t.Setenv("TERM", "xterm")
	for _, color := range []string{"auto", "always"} {
		out := succeed(t, tiny(data, "--out", color, "--steps", "2", "--color", color)...)
		if strings.Contains(out, "\n\x1b[1mdone: 2 steps") != (color == "always") || strings.Contains(out, "\x1b") != (color == "always") {
			t.Errorf("--color %s in a pipe:\n%q", color, out)
		}
	}
}
