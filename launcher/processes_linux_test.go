package main

// Launchers in processes of their own, and jobs whose ranks are processes.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"spmoe/collective/heap/heaptest"
	"spmoe/internal/fault"
	"spmoe/launcher/cli"
	"spmoe/launcher/report/page"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
)

// asLauncher makes this test program the launcher itself.
const asLauncher = "SPMOE_TEST_LAUNCHER"

// self is this program, for tests that change the working directory.
var self, _ = os.Executable()

// TestMain lets the test program be a rank, or a launcher, when a test has started it as one.
func TestMain(m *testing.M) {
	heaptest.Park()
	_, rank := os.LookupEnv("SPMOE_RANK")
	_, launcher := os.LookupEnv(asLauncher)
	if rank || launcher {
		os.Exit(run(running.CatchSignals(context.Background()), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// started is a launcher in a process of its own.
type started struct {
	*exec.Cmd
	log, errOut lockedBuffer
}

// prepare returns a launcher that a shell will start after some words of its own.
func prepare(t *testing.T, words string, args ...string) *started {
	t.Helper()
	p := &started{Cmd: exec.Command("sh", append([]string{"-c", words + ` exec "$0" "$@"`, self}, args...)...)}
	p.Env = append(os.Environ(), asLauncher+"=1")
	p.Stdout, p.Stderr = &p.log, &p.errOut
	return p
}

// begin starts the launcher, which does not outlive the test.
func (p *started) begin(t *testing.T) *started {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

// end waits for the launcher and returns its exit code, or 128 plus the number of the signal that
// has killed it.
func (p *started) end() int {
	p.Wait()
	if s := p.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return p.ProcessState.ExitCode()
}

// lockedBuffer is read while a launcher writes to it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// processRun is a run of a second, more what a test adds.
func processRun(out string, more ...string) []string {
	return slices.Concat(strings.Fields("-np 4 --ranks process train --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --report=false"),
		tinyModel, []string{"--set", "model.experts=8", "--data", ownText, "--out", out}, more)
}

// pids finds the ranks' processes in the line that says where they run.
var pids = regexp.MustCompile(`processes: (\d+)[^,]*, (\d+)[^,]*, (\d+)[^,]*, (\d+)`)

func processesIn(errOut string) (list []int) {
	for _, text := range pids.FindStringSubmatch(errOut)[1:] {
		pid, _ := strconv.Atoi(text)
		list = append(list, pid)
	}
	return list
}

// processAlive reports whether a process exists and is no zombie. A zombie waits for its parent.
func processAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z")
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

// beginning calls do with the ranks' processes when the first step has been logged.
type beginning struct {
	errOut lockedBuffer
	do     func(pids []int)
}

func (b *beginning) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("step:")) && b.do != nil {
		do := b.do
		b.do = nil
		do(processesIn(b.errOut.String()))
	}
	return len(line), nil
}

// shardsAt is the checkpoint that 4 ranks have written after a step.
func shardsAt(t *testing.T, run string, step int) (all []byte) {
	t.Helper()
	for r := range 4 {
		part, err := os.ReadFile(filepath.Join(run, fmt.Sprintf("step-%08d", step), fmt.Sprintf("rank-%05d-of-00004.safetensors", r)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part...)
	}
	return all
}

// However a job of processes ends, its launcher says why and takes its ranks along. None of them
// has listened on a socket, nothing of the environment is in what they print and write, and the
// user's umask says who may read that. An order to fail in the environment of the launcher is none
// of its ranks'.
func TestEndsOfProcesses(t *testing.T) {
	t.Parallel()
	order := fault.Order{Action: fault.Kill, Place: fault.BeforeJoin, Count: 1}
	for name, c := range map[string]struct {
		rank   int
		signal syscall.Signal // to it
		more   string
		code   int
		want   string // with the number of its process
		stacks int    // that are printed
	}{
		"healed":  {0, syscall.SIGKILL, "--steps 40 --spares 1 --save-every 20 --set record_every=10 --profile --report", cli.ExitOK, "process %d was killed by signal 9", 0},
		"killed":  {2, syscall.SIGKILL, "--steps 100000 --restarts 0", 137, "rank 2 failed: its process %d was killed by signal 9 (killed)", 0},
		"stopped": {2, syscall.SIGSTOP, "--steps 100000 --restarts 0", 137, "rank 2 failed: its process %d has been stopped for", 0},
		"quits":   {2, syscall.SIGQUIT, "--steps 100000 --restarts 0", 2, "rank 2 failed: its process %d", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "run")
			p := prepare(t, "umask 077;", processRun(out, append(strings.Fields(c.more), "--set", "log_every=1")...)...)
			p.Dir = dir
			p.Env = append(p.Env, fault.Variable+"="+order.String(), "SPMOE_CANARY_TOKEN="+canary, "AWS_SECRET_ACCESS_KEY="+canary, canary+"=1", "GOTRACEBACK=all")
			p.begin(t)
			await(t, "a step", func() bool { return strings.Contains(p.log.String(), "step: ") })
			ranks := processesIn(p.errOut.String())
			checkProcesses(t, out, p.Process.Pid, ranks)
			syscall.Kill(ranks[c.rank], c.signal)
			code, said := p.end(), p.errOut.String()
			if code != c.code || !strings.Contains(said, fmt.Sprintf(c.want, ranks[c.rank])) {
				t.Errorf("exit code %d, want %d and %q: %s", code, c.code, c.want, said)
			}
			if n := strings.Count(said, "SIGQUIT: quit"); n != c.stacks || n > 0 && !strings.Contains(said, "spmoe/collective.") {
				t.Errorf("%d ranks have printed their stacks, want %d: %s", n, c.stacks, said)
			}
			for _, pid := range ranks {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("process %d is still there", pid)
				}
			}
			saved, _ := filepath.Glob(filepath.Join(out, "step-*"))
			if (len(saved) > 0) != (code == cli.ExitOK) {
				t.Errorf("checkpoints: %v", saved)
			}
			if code == cli.ExitOK {
				checkPages(t, out)
			}
			checkSecrets(t, dir, p.log.String()+said)
		})
	}
}

// checkProcesses looks at a job that is under way. If memory runs out, the kernel is to choose a
// rank and not the launcher. The launcher alone holds the lock of the run, which ends with it.
func checkProcesses(t *testing.T, out string, launcher int, ranks []int) {
	t.Helper()
	score := func(pid int) int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	own := score(launcher)
	for _, pid := range append(ranks, launcher) {
		if sockets := listening(t, pid); len(sockets) > 0 {
			t.Errorf("sockets: %q", sockets)
		}
		if got, want := score(pid), min(own+500, 1000); pid != launcher && got != want {
			t.Errorf("rank process %d has score %d, want %d", pid, got, want)
		}
		holds := false
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range open {
			to, _ := os.Readlink(fd)
			holds = holds || to == filepath.Join(out, ".lock")
		}
		if holds != (pid == launcher) {
			t.Errorf("process %d has the lock's file open: %t", pid, holds)
		}
	}
	refuse(t, cli.ExitUsage, processRun(out, "--steps", "40"), out+" is in use by process "+strconv.Itoa(launcher))
}

// checkPages looks at the report of a run after a rank was replaced.
func checkPages(t *testing.T, out string) {
	t.Helper()
	report, err := os.ReadFile(filepath.Join(out, page.File))
	if text := string(report); err != nil || strings.Count(text, `"event":"detected"`) != 1 || !strings.Contains(text, "was killed by signal 9") {
		t.Errorf("the report does not tell of the failure: %.300s (%v)", text, err)
	}
}

// A run that fails by itself at the same step again and again is given up, with a code that says
// so.
func TestPoison(t *testing.T) {
	t.Parallel()
	var out, errOut lockedBuffer
	args := tiny(ownText, "--ranks", "process", "-np", "2", "--out", filepath.Join(t.TempDir(), "run"), "--restarts", "2")
	fail := fault.Order{Action: fault.Exit1, Place: fault.AfterStep, Count: 1}
	code := launchTrain(t.Context(), args, func(rank int, _ uint32) string {
		if rank == 1 {
			return fail.String()
		}
		return ""
	}, &out, &errOut)
	if text := errOut.String(); code != spmd.DoNotRestart || !strings.Contains(text, "it is failure number 3 without a step in between") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// A rank that is replaced begins with the weights and the tokenizer of the others. Once there is a
// checkpoint, it does so although the folder that the run began with is gone: the run has copies.
func TestHealingWithoutOrigin(t *testing.T) {
	t.Parallel()
	data, folder := text(t), t.TempDir()
	first, origin := filepath.Join(folder, "first"), filepath.Join(folder, "origin")
	succeed(t, processRun(first, "--ranks", "goroutine", "--data", data, "--tokenizer", trainedTokenizer(t, data), "--steps", "1")...)
	succeed(t, "convert", "--from", first, "--to", origin)
	args := func(out, ranks string) []string {
		line := "-np 4 train --steps 20 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --set log_every=1 --save-every 5 --report=false"
		return append(strings.Fields(line), "--ranks", ranks, "--init-from", origin, "--data", data, "--out", filepath.Join(folder, out))
	}
	succeed(t, args("calm", "goroutine")...)
	b := &beginning{do: func(ranks []int) { syscall.Kill(ranks[1], syscall.SIGKILL) }}
	gone := &watcher{[]string{"saved "}, func() {
		if err := os.RemoveAll(origin); err != nil {
			t.Error(err)
		}
		syscall.Kill(processesIn(b.errOut.String())[2], syscall.SIGKILL)
	}}
	if code := run(t.Context(), args("healed", "process"), io.MultiWriter(b, gone), &b.errOut); code != cli.ExitOK || strings.Count(b.errOut.String(), "replaces it") != 2 {
		t.Fatalf("exit code %d: %s", code, b.errOut.String())
	}
	if !bytes.Equal(shardsAt(t, filepath.Join(folder, "healed"), 20), shardsAt(t, filepath.Join(folder, "calm"), 20)) {
		t.Error("the final state differs from that of ranks that are goroutines and that nothing disturbed")
	}
}
