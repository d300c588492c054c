package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"time"

	"spmoe/collective/heap/heaptest"
	"spmoe/internal/fault"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// asLauncher makes this test program the launcher itself.
const asLauncher = "SPMOE_TEST_LAUNCHER"

// peakFile names a file into which a launcher writes its peak of resident bytes.
const peakFile = "SPMOE_TEST_PEAK"

// TestMain lets the test program be a rank, or a launcher, when a test has started it as one.
func TestMain(m *testing.M) {
	heaptest.Park()
	_, rank := os.LookupEnv("SPMOE_RANK")
	_, launcher := os.LookupEnv(asLauncher)
	if rank || launcher {
		code := run(running.CatchSignals(context.Background()), os.Args[1:], os.Stdout, os.Stderr)
		if path := os.Getenv(peakFile); path != "" {
			os.WriteFile(path, fmt.Append(nil, system.MostResident()), 0o600)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// processRun is a run of a second, more what a test adds.
func processRun(out string, more ...string) []string {
	return slices.Concat(strings.Fields("-np 4 --ranks process train --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --report=false"),
		tinyModel, []string{"--set", "model.experts=8", "--data", ownText, "--out", out}, more)
}

// Ranks that are processes train the bits of ranks that are goroutines, with either exchange and
// whatever travels.
func TestProcessesAndGoroutinesAgree(t *testing.T) {
	for name, ways := range map[string][][]string{
		"bf16":  {{"--ranks", "goroutine"}, {"--set", "ep_exchange=standard"}, {"--bind-to", "core", "--tag-output"}},
		"mxfp8": {{"--ranks", "goroutine"}, {}, {"--recompute", "full"}},
		"mxfp8 on the wire": {
			{"--ranks", "goroutine", "--set", "ep_dispatch=mxfp8", "--set", "ep_combine_backward=mxfp8"}, {"--set", "ep_dispatch=mxfp8", "--set", "ep_combine_backward=mxfp8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			precision, _, _ := strings.Cut(name, " ")
			var first []byte
			for i, more := range ways {
				out := filepath.Join(t.TempDir(), "run")
				got := launch(processRun(out, append([]string{"--steps", "5", "--precision", precision, "--set", "record_every=2"}, more...)...)...)
				if got.code != cli.ExitOK || strings.Contains(got.errOut, "failed") {
					t.Fatalf("%v: exit code %d: %s", more, got.code, got.errOut)
				}
				all := append(shards(t, out), timeless(t, out)...)
				if i == 0 {
					first = all
				} else if !bytes.Equal(all, first) {
					t.Errorf("%v: the checkpoint or the record differs from that of goroutines", more)
				}
				if tagged := strings.HasPrefix(got.out, "[0] "); tagged != slices.Contains(more, "--tag-output") {
					t.Errorf("%v: output begins %q", more, got.out[:20])
				}
			}
		})
	}
}

// shards is the checkpoint that 4 ranks have written after 5 steps.
func shards(t *testing.T, run string) []byte { return shardsAt(t, run, 5) }

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

// timeless is the record of a run without what the clock says.
func timeless(t *testing.T, run string) []byte {
	t.Helper()
	log, err := record.Read(run)
	if err != nil {
		t.Fatal(err)
	}
	if log.Times == nil || log.Done == nil {
		t.Fatalf("the record of %s has not ended", run)
	}
	return outcomes(t, run)
}

// pids finds the ranks' processes in the line that says where they run.
var pids = regexp.MustCompile(`processes: (\d+)[^,]*, (\d+)[^,]*, (\d+)[^,]*, (\d+)`)

// beginning calls do with the ranks' processes when the first step has been logged.
type beginning struct {
	errOut lockedBuffer
	do     func(pids []int)
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

func (b *beginning) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("step:")) && b.do != nil {
		do := b.do
		b.do = nil
		do(b.processes())
	}
	return len(line), nil
}

func (b *beginning) processes() (list []int) {
	for _, text := range pids.FindStringSubmatch(b.errOut.String())[1:] {
		pid, _ := strconv.Atoi(text)
		list = append(list, pid)
	}
	return list
}

// A rank that dies or stops ends a job that heals nothing, with a message that names it; an
// interrupted job saves. Nobody is left.
func TestEndsOfProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(cancel func(), pids []int)
		code int
		want string
	}{
		"killed":              {func(_ func(), pids []int) { syscall.Kill(pids[2], syscall.SIGKILL) }, 137, "rank 2 failed: its process %d was killed by signal 9 (killed)"},
		"stopped":             {func(_ func(), pids []int) { syscall.Kill(pids[2], syscall.SIGSTOP) }, 137, "rank 2 failed: its process %d has been stopped for"},
		"interrupted":         {func(cancel func(), _ []int) { cancel() }, cli.ExitInterrupted, ""},
		"killed, with stacks": {func(_ func(), pids []int) { syscall.Kill(pids[2], syscall.SIGKILL) }, 137, "rank 2 failed: its process %d was killed by signal 9 (killed)"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			out := filepath.Join(t.TempDir(), "run")
			var ranks []int
			b := &beginning{do: func(pids []int) {
				ranks = pids
				test.do(cancel, pids)
			}}
			args := processRun(out, "--steps", "100000", "--set", "log_every=1", "--restarts", "0")
			stacks := strings.HasSuffix(name, "with stacks")
			if stacks {
				args = append(args, "--get-stack-traces")
			}
			code := run(ctx, args, b, &b.errOut)
			if want := test.want; code != test.code || want != "" && !strings.Contains(b.errOut.String(), fmt.Sprintf(want, ranks[2])) {
				t.Errorf("exit code %d, want %d; errors %q", code, test.code, b.errOut.String())
			}
			if n := strings.Count(b.errOut.String(), "SIGQUIT: quit"); stacks != (n == 3) || n > 0 && !strings.Contains(b.errOut.String(), "spmoe/collective.") {
				t.Errorf("%d ranks have printed their stacks; errors %q", n, b.errOut.String())
			}
			for _, pid := range ranks {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("process %d is still there", pid)
				}
			}
			saved, _ := filepath.Glob(filepath.Join(out, "step-*"))
			if (len(saved) > 0) != (test.code == cli.ExitInterrupted) {
				t.Errorf("checkpoints: %v", saved)
			}
		})
	}
}

// Ranks that die or stop, whichever they are and several at once, are replaced, and the run ends
// with the bits of one that nothing disturbed.
func TestHealing(t *testing.T) {
	const steps = 20
	args := func(out string, more ...string) []string {
		return processRun(out, append([]string{"--steps", strconv.Itoa(steps), "--set", "log_every=1", "--set", "record_every=7", "--save-every", "8"}, more...)...)
	}
	undisturbed := filepath.Join(t.TempDir(), "run")
	if got := launch(args(undisturbed)...); got.code != cli.ExitOK {
		t.Fatal(got.errOut)
	}
	for name, test := range map[string]struct {
		do     func(pids []int)
		failed int // ranks
		more   []string
	}{
		"rank 0":          {func(pids []int) { syscall.Kill(pids[0], syscall.SIGKILL) }, 1, nil},
		"stopped":         {func(pids []int) { syscall.Kill(pids[1], syscall.SIGSTOP) }, 1, []string{"--spares", "1"}},
		"two, one spare":  {func(pids []int) { syscall.Kill(pids[1], syscall.SIGKILL); syscall.Kill(pids[2], syscall.SIGKILL) }, 2, []string{"--spares", "1"}},
		"all, two spares": {func(pids []int) { killAll(pids) }, 4, []string{"--spares", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			b := &beginning{do: test.do}
			if code := run(context.Background(), args(out, test.more...), b, &b.errOut); code != cli.ExitOK {
				t.Fatalf("exit code %d: %s", code, b.errOut.String())
			}
			if n := strings.Count(b.errOut.String(), "replaces it"); n != test.failed {
				t.Errorf("%d ranks were replaced, want %d: %s", n, test.failed, b.errOut.String())
			}
			for _, r := range []string{undisturbed, out} {
				events, err := record.ReadEvents(r)
				failed := slices.ContainsFunc(events, func(e spmd.Event) bool { return e.Kind == spmd.Detected })
				if err != nil || failed != (r == out) {
					t.Errorf("events of %s: %v (%v)", r, events, err)
				}
			}
			if !bytes.Equal(shardsAt(t, out, steps), shardsAt(t, undisturbed, steps)) || !bytes.Equal(outcomes(t, out), outcomes(t, undisturbed)) {
				t.Error("the final state or the losses differ from those of a run that nothing disturbed")
			}
		})
	}
}

func killAll(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// outcomes is what the record of a run says of its steps, times aside.
func outcomes(t *testing.T, run string) []byte {
	t.Helper()
	log, err := record.Read(run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(log.Timeless())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A run that fails by itself at the same step again and again is given up, with a code that says
// so.
func TestPoison(t *testing.T) {
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

// Kills from outside are not the step's fault, however many there are in one step.
func TestKillStorm(t *testing.T) {
	var out lockedBuffer
	k := killer{errOut: new(lockedBuffer), left: 6}
	folder := filepath.Join(t.TempDir(), "run")
	code := run(t.Context(), processRun(folder, "--steps", "5", "--restarts", "2"), &out, &k)
	if text := k.errOut.String(); code != cli.ExitOK || k.left > 0 || strings.Count(text, "replaces it") < 6 {
		t.Fatalf("exit code %d, %d kills left: %s", code, k.left, text)
	}
	calm := filepath.Join(t.TempDir(), "run")
	succeed(t, processRun(calm, "--steps", "5", "--ranks", "goroutine")...)
	if !bytes.Equal(shards(t, folder), shards(t, calm)) {
		t.Error("the final state differs from that of a run that nothing disturbed")
	}
}

// If memory runs out, the kernel is to choose a rank and not the launcher.
func TestMemoryScores(t *testing.T) {
	var scores []string
	score := func(pid string) string {
		text, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	b := &beginning{do: func(pids []int) {
		for _, pid := range pids {
			scores = append(scores, score(strconv.Itoa(pid)))
		}
	}}
	if code := run(t.Context(), processRun(filepath.Join(t.TempDir(), "run"), "--steps", "2", "--set", "log_every=1"), b, &b.errOut); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, b.errOut.String())
	}
	own, err := strconv.Atoi(score("self"))
	if want := strconv.Itoa(min(own+500, 1000)); err != nil || !slices.Equal(scores, []string{want, want, want, want}) {
		t.Errorf("scores %v, want %s, because that of the launcher is %d (%v)", scores, want, own, err)
	}
}

// killer kills rank 0's first process and those that replace it, as long as there are kills left.
type killer struct {
	errOut *lockedBuffer
	left   int
}

var announced = regexp.MustCompile(`are processes: (\d+)|process (\d+) replaces it`)

func (k *killer) Write(line []byte) (int, error) {
	if m := announced.FindSubmatch(line); m != nil && k.left > 0 {
		k.left--
		pid, _ := strconv.Atoi(string(m[1]) + string(m[2]))
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return k.errOut.Write(line)
}

// A launcher that is killed takes its ranks along.
func TestLauncherKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, processRun(filepath.Join(t.TempDir(), "run"), "--steps", "100000", "--set", "log_every=1")...)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	var ranks []int
	b := &beginning{do: func(pids []int) {
		ranks = pids
		cmd.Process.Kill()
	}}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &b.errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.Copy(b, stdout) // until the last rank has ended
	cmd.Wait()
	if len(ranks) != 4 {
		t.Fatalf("no step was logged: %s", b.errOut.String())
	}
	for _, pid := range ranks {
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && processAlive(pid); {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", pid)
			}
		}
	}
}

// processAlive reports whether a process exists and is no zombie. A zombie waits for its parent.
func processAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z")
}

// Flags of processes are refused for goroutines, and values that mean nothing.
func TestWorldFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`--ranks is "threads": use goroutine or process`: {"--ranks", "threads"},
		`--bind-to is "socket": use none or core`:        {"--ranks", "process", "--bind-to", "socket"},
		"add --ranks process":                            {"--tag-output"},
		"--spares is -1":                                 {"--ranks", "process", "--spares", "-1"},
		"--spares has no effect with --restarts 0":       {"--ranks", "process", "--spares", "1", "--restarts", "0"},
		"--silence must be positive":                     {"--silence", "0"},
		"-np is 1000: give 1 or more ranks, at most 256": {"-np", "1000"},
		`ep_exchange is "mpi": use onesided or standard`: {"--set", "ep_exchange=mpi"},
	} {
		refuse(t, cli.ExitUsage, append([]string{"train"}, args...), want)
	}
}
