package main

// Signals, and outputs that no one reads.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
)

// signalTries is the variable with the number of moments at which TestSignals sends a signal.
const signalTries = "SPMOE_SIGNAL_TRIES"

// Whenever a signal comes, while ranks start, train, are healed or save, the run ends with the code
// of the signal and has saved its last step. The same command ends with the bits of a run that was
// left alone.
func TestSignals(t *testing.T) {
	t.Parallel()
	tries := numberIn(t, signalTries, 3)
	const steps = 40
	args := func(out string) []string {
		return processRun(out, "--steps", strconv.Itoa(steps), "--set", "log_every=1", "--save-every", "10", "--spares", "1")
	}
	calm := filepath.Join(t.TempDir(), "calm")
	begin := time.Now()
	if code := prepare(t, "", args(calm)...).begin(t).end(); code != cli.ExitOK {
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
			p := prepare(t, "", args(out)...).begin(t)
			time.Sleep(wait) // a random moment
			children := childrenOf(p.Process.Pid)
			if n := len(children); n > 0 && killFirst {
				syscall.Kill(children[rng.IntN(n)], syscall.SIGKILL)
			}
			for _, pid := range children {
				if toAll { // as systemd and Slurm do
					syscall.Kill(pid, s)
				}
			}
			p.Process.Signal(s)
			if n := len(children); n > 0 && killAfter {
				syscall.Kill(children[rng.IntN(n)], syscall.SIGKILL)
			}
			code := p.end()
			checkStopped(t, out, s, code, p.log.String(), p.errOut.String())
			if got := launch(args(out)...); got.code != cli.ExitOK {
				t.Fatalf("the same command ends with %d: %s", got.code, got.errOut)
			}
			if !bytes.Equal(shardsAt(t, out, steps), want) {
				t.Error("the final state differs from that of a run that was left alone")
			}
		})
	}
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

// Under nohup a terminal that closes does not stop a run. The tests themselves may run under nohup:
// a signal that they receive is not ignored by their children.
func TestNohup(t *testing.T) {
	t.Parallel()
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	defer signal.Stop(received)
	out := filepath.Join(t.TempDir(), "run")
	p := prepare(t, "trap '' HUP;", processRun(out, "--steps", "100000", "--set", "log_every=1")...).begin(t)
	steps := func() int { return strings.Count(p.log.String(), "step: ") }
	await(t, "a step", func() bool { return steps() > 0 })
	p.Process.Signal(syscall.SIGHUP)
	seen := steps()
	await(t, "a step after SIGHUP", func() bool { return steps() > seen+20 })
	p.Process.Signal(syscall.SIGTERM)
	if code := p.end(); code != 143 {
		t.Errorf("exit code %d: %s", code, p.errOut.String())
	}
	if _, err := checkpoint.Latest(out); err != nil {
		t.Error(err)
	}
}

// A run whose output is closed goes on without its log.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{{"--ranks", "goroutine"}, nil} {
		out := filepath.Join(t.TempDir(), "run")
		p := prepare(t, "", processRun(out, append(more, "--steps", "30", "--set", "log_every=1")...)...)
		read, write := pipe(t)
		p.Stdout = write
		p.begin(t)
		write.Close()
		read.Read(make([]byte, 10))
		read.Close()
		if code := p.end(); code != cli.ExitOK || strings.Contains(p.errOut.String(), "failed") {
			t.Fatalf("%s: exit code %d: %s", more, code, p.errOut.String())
		}
		if path, err := checkpoint.Latest(out); err != nil || filepath.Base(path) != "step-00000030" {
			t.Errorf("%s: newest checkpoint %q, %v", more, path, err)
		}
	}
}

func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// stopText is what a run says at the first Ctrl-C.
const stopText = "; Ctrl-C again to stop now without saving"

// The first Ctrl-C is answered at once with the step that the run stops after, however the run
// shows its progress and whatever its ranks are.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	for show, more := range map[string]string{"plain": "--ranks goroutine", "json": "--log-format json"} {
		t.Run(show, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run")
			p := prepare(t, "", processRun(out, append(strings.Fields(more), "--steps", "100000", "--set", "log_every=1")...)...).begin(t)
			await(t, "a third step", func() bool {
				text, _ := os.ReadFile(filepath.Join(out, record.File))
				return bytes.Contains(text, []byte(`"step":3,`))
			})
			p.Process.Signal(syscall.SIGINT)
			if code := p.end(); code != 130 {
				t.Errorf("exit code %d, want 130: %s", code, p.errOut.String())
			}
			checkAnswer(t, show, p.log.String())
		})
	}
}

// checkAnswer checks that a log answers Ctrl-C with the step after which the run stopped. Processes
// may learn of it at different times.
func checkAnswer(t *testing.T, show, log string) {
	t.Helper()
	last, said, answers := 0, 0, 0
	if show == "json" {
		for line := range strings.Lines(log) {
			var e struct {
				Event, Text string
				Step        int
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Event == "stopping" && strings.Contains(e.Text, stopText) {
				said, answers = e.Step, answers+1
			}
			last = max(last, e.Step)
		}
	} else {
		for _, m := range regexp.MustCompile(`stopping after step (\d+);`).FindAllStringSubmatch(log, -1) {
			said, _ = strconv.Atoi(m[1])
			answers++
		}
		_, after, _ := strings.Cut(log, "interrupted after step ")
		fmt.Sscan(after, &last)
	}
	if answers != 1 || last == 0 || said != last && said != last-1 || !strings.Contains(log, stopText) {
		t.Errorf("it stops after step %d, and there are %d answers, the last of which says %d:\n%s", last, answers, said, log)
	}
}

// A second Ctrl-C ends a run that cannot stop, says what is lost, and leaves no process behind.
func TestSecondCtrlC(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	p := prepare(t, "", processRun(out, "--steps", "100000", "--set", "log_every=1", "--silence", "1h", "--spares", "1", "--save-every", "4")...).begin(t)
	await(t, "a checkpoint", func() bool { return strings.Contains(p.log.String(), "saved ") })
	ranks := processesIn(p.errOut.String())
	syscall.Kill(ranks[2], syscall.SIGSTOP)
	p.Process.Signal(syscall.SIGINT)
	await(t, "an answer", func() bool { return strings.Contains(p.log.String(), stopText) })
	await(t, "the end", func() bool { // the launcher ignores a second signal that comes too soon
		p.Process.Signal(syscall.SIGINT)
		return strings.Contains(p.errOut.String(), "stopped at once")
	})
	hint := "to continue from it: launcher -np 4 train --resume --out " + out
	if code := p.end(); code != 130 || !strings.Contains(p.errOut.String(), hint) {
		t.Errorf("exit code %d, and %q is not in\n%s", code, hint, p.errOut.String())
	}
	for _, pid := range ranks {
		await(t, "an end of process "+strconv.Itoa(pid), func() bool { return !processAlive(pid) })
	}
}

// A run that is stopped while it is prepared has nothing to save, and says so.
func TestStopBeforeStart(t *testing.T) {
	for _, kind := range []string{"goroutine", "process"} {
		out := filepath.Join(t.TempDir(), "run")
		refuse(t, cli.ExitInterrupted, processRun(out, "--ranks", kind), "stopped before the first step, there was nothing to save: there is no checkpoint yet")
	}
}
