package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
)

// signalTries is the variable with the number of moments at which TestSignals sends a signal.
const signalTries = "SPMOE_SIGNAL_TRIES"

// startLauncher starts this program as a launcher that may run as it is, or after the words of a
// shell.
func startLauncher(t *testing.T, out, errOut io.Writer, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	cmd.Stdout, cmd.Stderr = out, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

// endCode waits for a process and returns its exit code, or 128 plus the number of the signal that
// has killed it.
func endCode(cmd *exec.Cmd) int {
	cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// Whenever a signal comes, while ranks start, train, are healed or save, the run ends with the code
// of the signal and has saved its last step. The same command ends with the bits of a run that was
// left alone.
func TestSignals(t *testing.T) {
	tries := 3
	if text := os.Getenv(signalTries); text != "" {
		var err error
		if tries, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s is %q: give a number", signalTries, text)
		}
	}
	const steps = 40
	args := func(out string) []string {
		return processRun(out, "--steps", strconv.Itoa(steps), "--set", "log_every=1", "--save-every", "10", "--spares", "1")
	}
	calm := filepath.Join(t.TempDir(), "calm")
	begin := time.Now()
	if code := endCode(startLauncher(t, io.Discard, os.Stderr, args(calm)...)); code != cli.ExitOK {
		t.Fatalf("exit code %d", code)
	}
	usual := time.Since(begin)
	want := shardsAt(t, calm, steps)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range tries {
		s := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[i%3]
		wait := time.Duration(rng.Int64N(int64(usual)))
		killFirst, killAfter, toAll := rng.IntN(4) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0
		t.Run(fmt.Sprintf("%d %v after %v, kills %t %t, to all %t", i, s, wait.Round(time.Millisecond), killFirst, killAfter, toAll), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			var log, errOut lockedBuffer
			cmd := startLauncher(t, &log, &errOut, args(out)...)
			time.Sleep(wait) // a random moment
			children := childrenOf(cmd.Process.Pid)
			if n := len(children); n > 0 && killFirst {
				syscall.Kill(children[rng.IntN(n)], syscall.SIGKILL)
			}
			for _, pid := range children {
				if toAll { // as systemd and Slurm do
					syscall.Kill(pid, s)
				}
			}
			cmd.Process.Signal(s)
			if n := len(children); n > 0 && killAfter {
				syscall.Kill(children[rng.IntN(n)], syscall.SIGKILL)
			}
			code := endCode(cmd)
			checkStopped(t, out, s, code, log.String(), errOut.String())
			if code := endCode(startLauncher(t, io.Discard, os.Stderr, args(out)...)); code != cli.ExitOK {
				t.Fatalf("the same command ends with %d", code)
			}
			if !bytes.Equal(shardsAt(t, out, steps), want) {
				t.Error("the final state differs from that of a run that was left alone")
			}
		})
	}
}

// childrenOf lists the processes that a launcher has started.
func childrenOf(launcher int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			all = append(all, pid)
		}
	}
	return all
}

// checkStopped checks a run that a signal has stopped, or that was complete.
func checkStopped(t *testing.T, out string, s syscall.Signal, code int, log, errOut string) {
	t.Helper()
	newest := 0
	if path, err := checkpoint.Latest(out); err == nil {
		fmt.Sscanf(filepath.Base(path), "step-%d", &newest)
	}
	steps := loggedSteps.FindAllStringSubmatch(log, -1)
	last := 0
	if len(steps) > 0 {
		last, _ = strconv.Atoi(steps[len(steps)-1][1])
	}
	switch {
	case code == cli.ExitOK && newest == 40:
	case code != 128+int(s):
		t.Errorf("exit code %d, want %d\n%s", code, 128+int(s), errOut)
	case newest != last:
		t.Errorf("the newest checkpoint is of step %d, the last step was %d\n%s\n%s", newest, last, log, errOut)
	case last == 0 && log != "" && !strings.Contains(errOut, "there was nothing to save"):
		t.Errorf("nothing was saved, and nothing says so: %s", errOut)
	}
}

var loggedSteps = regexp.MustCompile(`(?m)^step: +(\d+) `)

// await polls until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there was never %s", what)
		}
	}
}

// A terminal that closes stops a run as SIGTERM does, except under nohup. The tests themselves may
// run under nohup: a signal that they receive is not ignored by their children.
func TestHangup(t *testing.T) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	defer signal.Stop(received)
	for _, kind := range []string{"goroutine", "process"} {
		for _, nohup := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nohup %t", kind, nohup), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "run")
				args := processRun(out, "--ranks", kind, "--steps", "100000", "--set", "log_every=1")
				var log, errOut lockedBuffer
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				trap := ""
				if nohup {
					trap = "trap '' HUP; "
				}
				cmd := exec.Command("sh", append([]string{"-c", trap + `exec "$0" "$@"`, self}, args...)...)
				cmd.Env = append(os.Environ(), asLauncher+"=1")
				cmd.Stdout, cmd.Stderr = &log, &errOut
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer cmd.Process.Kill()
				await(t, "a step", func() bool { return strings.Contains(log.String(), "step: ") })
				cmd.Process.Signal(syscall.SIGHUP)
				want := 129
				if nohup { // only another signal ends it
					seen := strings.Count(log.String(), "step: ")
					await(t, "a step after SIGHUP", func() bool { return strings.Count(log.String(), "step: ") > seen+20 })
					cmd.Process.Signal(syscall.SIGTERM)
					want = 143
				}
				if code := endCode(cmd); code != want {
					t.Errorf("exit code %d, want %d: %s", code, want, errOut.String())
				}
				if _, err := checkpoint.Latest(out); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A run whose output is closed goes on without its log, and an event says so.
func TestClosedOutput(t *testing.T) {
	for _, more := range [][]string{{"--ranks", "goroutine"}, {}, {"--tag-output"}} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var errOut lockedBuffer
			cmd := startLauncher(t, write, &errOut, processRun(out, append(more, "--steps", "30", "--set", "log_every=1")...)...)
			write.Close()
			read.Read(make([]byte, 10))
			read.Close()
			if code := endCode(cmd); code != cli.ExitOK || strings.Contains(errOut.String(), "failed") {
				t.Fatalf("exit code %d: %s", code, errOut.String())
			}
			if path, err := checkpoint.Latest(out); err != nil || filepath.Base(path) != "step-00000030" {
				t.Errorf("newest checkpoint %q, %v", path, err)
			}
			events, err := record.ReadEvents(out)
			said := 0
			for _, e := range events {
				if e.Kind == spmd.Alarm && strings.Contains(e.Reason, "the log cannot be printed") {
					said++
				}
			}
			if said != 1 {
				t.Errorf("%d events say so, want 1: %v, %v", said, events, errors.Join(err))
			}
		})
	}
}

// A short command ends quietly when its reader has gone.
func TestClosedOutputOfShortCommand(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	var errOut lockedBuffer
	cmd := startLauncher(t, write, &errOut, "inspect", "debug")
	write.Close()
	if code := endCode(cmd); code != 128+int(syscall.SIGPIPE) || errOut.String() != "" {
		t.Errorf("exit code %d: %q", code, errOut.String())
	}
}

// A command with nothing to save ends after the first signal although it is held up, here because
// no one reads its output.
func TestSignalOfHeldUpCommand(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	pipe := int(read.Fd())
	room, err := unix.FcntlInt(uintptr(pipe), unix.F_SETPIPE_SZ, os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	var errOut lockedBuffer
	cmd := startLauncher(t, write, &errOut, "help", "train", "--all")
	await(t, "a full pipe", func() bool {
		held, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
		return err == nil && held > room-1024 // the next line does not fit
	})
	cmd.Process.Signal(syscall.SIGTERM)
	if code := endCode(cmd); code != 143 {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

// A run that is still being prepared ends at the first signal, whatever holds it up.
func TestSignalDuringPreparation(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "tokens.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var log, errOut lockedBuffer
	cmd := startLauncher(t, &log, &errOut, processRun(filepath.Join(folder, "run"), "--tokenizer", pipe)...)
	await(t, "a reader of the pipe", func() bool {
		if !processAlive(cmd.Process.Pid) {
			t.Skipf("the launcher refuses a pipe: %s", errOut.String())
		}
		write, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // works once there is a reader
		if err == nil {
			t.Cleanup(func() { write.Close() })
		}
		return err == nil
	})
	cmd.Process.Signal(syscall.SIGTERM)
	if code := endCode(cmd); code != 143 || !strings.Contains(errOut.String(), "stopped before the first step, there was nothing to save") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}
