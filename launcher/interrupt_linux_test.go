package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"spmoe/internal/testing/vt"
	"spmoe/launcher/cli"
)

// stopText is what a run says at the first Ctrl-C.
const stopText = "; Ctrl-C again to stop now without saving"

// The first Ctrl-C is answered at once with the step that the run stops after, however the run
// shows its progress and whatever its ranks are.
func TestCtrlC(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for _, kind := range []string{"goroutine", "process"} {
		for _, show := range []string{"plain", "json", "live"} {
			t.Run(kind+" "+show, func(t *testing.T) {
				args := processRun(filepath.Join(t.TempDir(), "run"), "--ranks", kind, "--steps", "100000", "--set", "log_every=1")
				if show == "json" {
					args = append(args, jsonLog...)
				}
				var log lockedBuffer
				terminal := openPTY(t, 300, 40, func(term *vt.Terminal) {})
				seen := log.String
				cmd := exec.Command(os.Args[0], args...)
				cmd.Env = append(os.Environ(), asLauncher+"=1")
				if cmd.Stdout, cmd.Stderr = &log, &log; show == "live" {
					cmd.Stdout, cmd.Stderr = terminal.File, terminal.File
					seen = func() string { // the folder has the steps
						text, _ := os.ReadFile(filepath.Join(args[indexOf(args, "--out")+1], "metrics.jsonl"))
						return string(text)
					}
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer cmd.Process.Kill()
				await(t, "a third step", func() bool {
					return strings.Contains(seen(), "step: "+strings.Repeat(" ", 5)+"3 ") || strings.Contains(seen(), `"step":3,`)
				})
				cmd.Process.Signal(syscall.SIGINT)
				if code := endCode(cmd); code != 130 {
					t.Errorf("exit code %d, want 130: %s", code, log.String())
				}
				all, _ := terminal.seen(t)
				checkAnswer(t, show, log.String()+all)
			})
		}
	}
}

func indexOf(list []string, word string) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == word {
			return i
		}
	}
	return -1
}

// checkAnswer checks that a log answers Ctrl-C with the step after which the run stopped.
func checkAnswer(t *testing.T, show, log string) {
	t.Helper()
	if show == "json" {
		last, said := 0, 0
		for line := range strings.Lines(log) {
			var e struct {
				Event, Text string
				Step        int
			}
			if json.Unmarshal([]byte(line), &e) != nil {
				continue
			}
			if e.Event == "stopping" && strings.Contains(e.Text, stopText) {
				said = e.Step
			}
			last = max(last, e.Step)
		}
		if said == 0 || said != last && said != last-1 { // processes may learn of it at different times
			t.Errorf("it says that it stops after step %d, and does after step %d:\n%s", said, last, log)
		}
		return
	}
	_, after, found := strings.Cut(log, "interrupted after step ")
	text, _, _ := strings.Cut(after, " ")
	step, _ := strconv.Atoi(text)
	if n := answers(log, step) + answers(log, step-1); !found || n != 1 || !strings.Contains(log, stopText) {
		t.Errorf("it stops after step %d, and there are %d answers with a time:\n%s", step, n, log)
	}
}

// answers counts the answers with a step and a time.
func answers(log string, step int) int {
	return strings.Count(log, fmt.Sprintf("stopping after step %d (about ", step))
}

// A second Ctrl-C ends a run that cannot stop, says what is lost, and leaves no process behind.
func TestSecondCtrlC(t *testing.T) {
	for _, saves := range []bool{false, true} {
		t.Run(fmt.Sprintf("saves %t", saves), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := processRun(out, "--steps", "100000", "--set", "log_every=1", "--silence", "1h", "--spares", "1")
			hint := "nothing was saved: there is no checkpoint yet; the same command starts again"
			if saves {
				args = append(args, "--save-every", "4")
				hint = "to continue from it: launcher -np 4 train --resume --out " + out
			}
			var log, errOut lockedBuffer
			cmd := startLauncher(t, &log, &errOut, args...)
			await(t, "a step, and a checkpoint", func() bool {
				return strings.Contains(log.String(), "step: ") && strings.Contains(log.String(), "saved ") == saves
			})
			b := &beginning{}
			b.errOut.Write([]byte(errOut.String()))
			ranks := b.processes()
			syscall.Kill(ranks[2], syscall.SIGSTOP)
			cmd.Process.Signal(syscall.SIGINT)
			await(t, "an answer", func() bool { return strings.Contains(log.String(), stopText) })
			await(t, "the end", func() bool { // the launcher ignores a second signal that comes too soon
				cmd.Process.Signal(syscall.SIGINT)
				return strings.Contains(errOut.String(), "stopped at once")
			})
			if code := endCode(cmd); code != 130 || !strings.Contains(errOut.String(), hint) {
				t.Errorf("exit code %d, and %q is not in\n%s", code, hint, errOut.String())
			}
			for _, pid := range ranks {
				await(t, "an end of process "+strconv.Itoa(pid), func() bool { return !processAlive(pid) })
			}
		})
	}
}

// A run that is stopped while it is prepared has nothing to save, and says so.
func TestStopBeforeStart(t *testing.T) {
	for _, kind := range []string{"goroutine", "process"} {
		out := filepath.Join(t.TempDir(), "run")
		refuse(t, cli.ExitInterrupted, processRun(out, "--ranks", kind), "stopped before the first step, there was nothing to save: there is no checkpoint yet")
	}
}
