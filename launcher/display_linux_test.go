package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spmoe/internal/fault"
	"spmoe/internal/testing/vt"
	"spmoe/launcher/cli"
)

// pty is a pseudo terminal and what is seen on it.
type pty struct {
	*os.File // that a program writes to
	master   *os.File
	term     *vt.Terminal
	ended    chan struct{}
}

// openPTY makes a terminal. look is called with it after everything that has come.
func openPTY(t *testing.T, columns, rows int, look func(*vt.Terminal)) *pty {
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
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{slave, master, vt.New(columns, rows), make(chan struct{})}
	go func() {
		defer close(p.ended)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil { // nobody has it open any more
				return
			}
			p.term.Write(b[:n])
			look(p.term)
		}
	}()
	return p
}

// seen closes the terminal and returns all that was on it, and what is left on the screen.
func (p *pty) seen(t *testing.T) (all, screen string) {
	t.Helper()
	p.File.Close()
	<-p.ended
	p.master.Close()
	if p.term.Err != nil {
		t.Error(p.term.Err)
	}
	return p.term.All(), p.term.Screen()
}

// A run on a terminal shows a picture below its log, whatever its ranks are, and also once another
// process has become the one that reports. Interrupted, it ends with the log alone.
func TestLiveView(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	for name, c := range map[string]struct {
		columns  int
		args     string
		noColour string
		coloured bool
		kill     bool // rank 0, once
	}{
		"goroutines": {60, "", "", true, false},
		"replaced":   {90, "--ranks process", "", true, true},
		"NO_COLOR":   {90, "", "1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			os.Setenv("NO_COLOR", c.noColour)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			picture := ""
			terminal := openPTY(t, c.columns, 40, func(term *vt.Terminal) {
				screen := term.Screen()
				whole := strings.Contains(screen, "░") && strings.Contains(screen, " left") &&
					strings.ContainsAny(screen, "▂▃▄▅▆▇")
				if whole && picture == "" && (!c.kill || strings.Contains(term.All(), "launcher: all ranks continue after step")) {
					picture = screen
					cancel()
				}
			})
			args := tiny(data, append(strings.Fields(c.args), "-np", "2", "--steps", "1000000", "--set", "log_every=100", "--out", strings.ReplaceAll(name, " ", "-"))...)
			die := fault.Order{Action: fault.Kill, Place: fault.AfterStep, Count: 20}
			code := launchTrain(ctx, args, func(rank int, generation uint32) string {
				if c.kill && rank == 0 && generation == 0 {
					return die.String()
				}
				return ""
			}, terminal.File, terminal.File)
			all, screen := terminal.seen(t)
			if picture == "" || code != cli.ExitInterrupted {
				t.Fatalf("exit code %d, and no picture, but at the end\n%s", code, screen)
			}
			unbroken := func(text string) string { return strings.Join(strings.Fields(text), "") } // rows end anywhere
			joined := unbroken(all)
			if strings.Contains(joined, "░") {
				t.Errorf("the picture is still there:\n%s", screen)
			}
			for _, want := range []string{"spmoe: debug", "validation after step 0", "saved ", "interrupted after step"} {
				if n := strings.Count(joined, unbroken(want)); n != 1 {
					t.Errorf("%q is there %d times, want 1:\n%s", want, n, all)
				}
			}
			if coloured := len(terminal.term.Styles) > 0; coloured != c.coloured {
				t.Errorf("colours: %q", terminal.term.Styles)
			}
		})
	}
}

// A run that was stopped and goes on in the foreground leaves alone what the shell has written.
func TestLiveViewAfterStop(t *testing.T) {
	t.Parallel()
	data := text(t)
	const shell = "[1]+  Stopped\r\n$ ls\r\nREADME.md\r\n$ fg\r\n"
	pictures := make(chan int, 1)
	terminal := openPTY(t, 90, 60, func(term *vt.Terminal) {
		select {
		case <-pictures:
		default:
		}
		pictures <- strings.Count(term.All(), " so far")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	p := prepare(t, "", tiny(data, "-np", "2", "--steps", "1000000", "--set", "log_every=1000000", "--out", filepath.Join(t.TempDir(), "run"))...)
	p.Env = append(p.Env, "TERM=xterm")
	p.Stdout, p.Stderr = terminal.File, terminal.File
	p.begin(t)
	drawn := 0
	await := func(want int) {
		t.Helper()
		for drawn < want {
			select {
			case drawn = <-pictures:
			case <-ctx.Done():
				t.Fatalf("%d pictures, want %d", drawn, want)
			}
		}
	}
	await(1)
	p.Process.Signal(syscall.SIGSTOP)
	for state := ""; !strings.Contains(state, ") T "); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("%s: %v, %v", stat, err, ctx.Err())
		}
		state = string(stat)
	}
	if _, err := terminal.File.WriteString(shell); err != nil {
		t.Fatal(err)
	}
	select {
	case drawn = <-pictures: // drawn before it stopped
	default:
	}
	p.Process.Signal(syscall.SIGCONT)
	await(drawn + 1)
	p.Process.Signal(syscall.SIGINT)
	p.end()
	all, _ := terminal.seen(t)
	if !strings.Contains(all, "[1]+  Stopped\n$ ls\nREADME.md\n$ fg\n") {
		t.Errorf("the lines of the shell are gone:\n%s", all)
	}
}

// A terminal that cannot move its cursor, and --plain, have the log alone, and a pipe has no
// control character in it.
func TestPlainLog(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for name, args := range map[string][]string{"dumb": nil, "xterm": {"--plain", "--color", "never"}} {
		t.Setenv("TERM", name)
		terminal := openPTY(t, 200, 40, func(*vt.Terminal) {})
		code := run(t.Context(), tiny(data, append(args, "--out", name)...), terminal.File, terminal.File)
		all, _ := terminal.seen(t)
		if code != cli.ExitOK || strings.Count(all, "\nstep: ") != 6 || !strings.Contains(all, "\ndone: 6 steps") || strings.Contains(all, "░") || len(terminal.term.Styles) > 0 {
			t.Errorf("%s: exit code %d, styles %q:\n%s", name, code, terminal.term.Styles, all)
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
