package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

// smallDisk mounts a disk with room for a number of the tiny run's checkpoints, and a bit more. It
// returns a run folder there.
func smallDisk(t *testing.T, checkpoints float64) (run string) {
	t.Helper()
	succeed(t, tiny(text(t), "--out", "measured", "--steps", "1")...)
	parts, err := filepath.Glob("measured/step-00000001/*")
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, p := range parts {
		stat, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		size += (stat.Size() + 4095) &^ 4095
	}
	dir := t.TempDir()
	mount(t, dir, 0, fmt.Sprintf("size=%d", int64(checkpoints*float64(size))+128<<10))
	return filepath.Join(dir, "run")
}

// fillDisk writes a file until its disk is full.
func fillDisk(path string) {
	file, err := os.Create(path)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	file.Close()
}

// A disk without the space for the run's checkpoints is refused before training starts.
func TestDiskTooSmall(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	run := smallDisk(t, 2)
	args := tiny(data, "--out", run, "--set", "keep=3", "--set", "optimizer.warmup=2")
	refuse(t, cli.ExitUsage, args, run+" has ", "of free space, but the checkpoints need about", "more: each takes", "give --out on another disk", "--save-every 0", "--set keep=2")
	if entries, err := os.ReadDir(filepath.Dir(run)); err != nil || len(entries) != 0 {
		t.Errorf("%v is left (%v)", entries, err)
	}
	succeed(t, append(args, "--save-every", "0")...)
	refuse(t, cli.ExitUsage, []string{"compare", "--quick", "--out", run + "s", "--data", data}, "of free space, but the checkpoints need")
}

// A disk that fills up while a run goes on and is freed after its last step loses nothing: neither
// the state nor the record.
func TestDiskFullAtTheEnd(t *testing.T) {
	for _, kind := range []string{"goroutine", "process"} {
		t.Run(kind, func(t *testing.T) {
			data := text(t)
			t.Chdir(t.TempDir())
			run := smallDisk(t, 4)
			filler := filepath.Join(filepath.Dir(run), "filler")
			fill := &watcher{[]string{"step:  3 "}, func() { fillDisk(filler) }}
			free := &watcher{[]string{"ALARM", "the last of this run, was not saved", "of free space: free some there", "trying again for"}, func() {
				if err := os.Remove(filler); err != nil {
					t.Error(err)
				}
			}}
			both := writers{fill, free}
			got := launchTo(context.Background(), both, tiny(data, "-np", "2", "--ranks", kind, "--out", run, "--steps", "40")...)
			if got.code != cli.ExitOK || fill.do != nil || free.do != nil {
				t.Fatalf("exit code %d: %s\n%s", got.code, got.errOut, got.out)
			}
			log, err := record.Read(run)
			if err != nil || len(log.Steps) != 40 || log.Done == nil {
				t.Errorf("the record has %d steps (%v)", len(log.Steps), err)
			}
			if strings.Contains(got.errOut, "not complete") {
				t.Errorf("errors %q", got.errOut)
			}
			succeed(t, "checkpoint", "verify", run)
			if _, err := os.Stat(filepath.Join(run, "step-00000040")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run that gives up says what is lost, with an exit code of its own.
func TestDiskStaysFull(t *testing.T) {
	for _, kind := range []string{"goroutine", "process"} {
		t.Run(kind, func(t *testing.T) {
			data := text(t)
			t.Chdir(t.TempDir())
			run := smallDisk(t, 4)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			fill := &watcher{[]string{"step:  3 "}, func() { fillDisk(filepath.Join(filepath.Dir(run), "filler")) }}
			giveUp := &watcher{[]string{"ALARM", "trying again for"}, cancel}
			got := launchTo(ctx, writers{fill, giveUp}, tiny(data, "-np", "2", "--ranks", kind, "--out", run, "--steps", "40")...)
			if got.code != cli.ExitUnsaved || !strings.Contains(got.errOut, "the checkpoint of step 40, the last of this run, was not saved") ||
				!strings.Contains(got.errOut, "no space left on device") {
				t.Errorf("exit code %d: %s\n%s", got.code, got.errOut, got.out)
			}
		})
	}
}

// So does a run whose ranks have all been replaced.
func TestDiskStaysFullAfterFailures(t *testing.T) {
	t.Chdir(t.TempDir())
	out := smallDisk(t, 8)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun := &beginning{do: func(ranks []int) {
		fillDisk(filepath.Join(filepath.Dir(out), "filler"))
		for _, pid := range ranks {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}}
	giveUp := &watcher{[]string{"ALARM", "trying again for"}, cancel}
	code := run(ctx, processRun(out, "--steps", "40", "--set", "log_every=1", "--restarts", "9"), io.MultiWriter(begun, writers{giveUp}), &begun.errOut)
	if text := begun.errOut.String(); code != cli.ExitUnsaved || !strings.Contains(text, "replaces it") ||
		!strings.Contains(text, "the checkpoint of step 40, the last of this run, was not saved") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// resumeUntil continues a run to a step, without output.
func resumeUntil(run, keep string, steps int, more ...string) []string {
	return append([]string{"train", "--resume", "--out", run, "--set", "keep=" + keep, "--steps", fmt.Sprint(steps), "--report=false", "--set", "sample_tokens=0"}, more...)
}

// A run on a disk without room for a checkpoint more than it keeps goes on when it is resumed: what
// it has read takes no space once it is deleted.
func TestResumeOnFullDisk(t *testing.T) {
	for keep, room := range map[string]float64{"0": 1.4, "1": 3.3, "2": 3.3} {
		for _, kind := range []string{"goroutine", "process"} {
			t.Run(keep+" "+kind, func(t *testing.T) {
				data := text(t)
				t.Chdir(t.TempDir())
				run := smallDisk(t, room)
				succeed(t, tiny(data, "--out", run, "--steps", "2", "--set", "keep="+keep, "--save-every", "1")...)
				for _, steps := range []int{6, 8} {
					got := launch(resumeUntil(run, keep, steps, "-np", "2", "--ranks", kind, "--save-every", "1")...)
					if got.code != cli.ExitOK || strings.Contains(got.out+got.errOut, "ALARM") {
						t.Fatalf("to step %d: exit code %d: %s\n%s", steps, got.code, got.errOut, got.out)
					}
				}
				succeed(t, "checkpoint", "verify", run)
			})
		}
	}
}

// A run that keeps no older checkpoint does not give up the only one for nothing: not if others
// fill the disk, and not if its files are open elsewhere. It comes back from a launcher that was
// killed before anything was deleted.
func TestOnlyCheckpointStays(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	run := smallDisk(t, 1.4)
	succeed(t, tiny(data, "--out", run, "--steps", "2", "--set", "keep=0", "--save-every", "0")...)
	first := filepath.Join(run, "step-00000002")
	shards, err := filepath.Glob(filepath.Join(first, "rank-*"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	open, err := os.Open(shards[0])
	if err != nil {
		t.Fatal(err)
	}
	got := launch(resumeUntil(run, "0", 3, "--set", "save_retry=1s")...)
	if got.code != cli.ExitUnsaved || !strings.Contains(got.errOut, "also without step-00000002, which therefore stays: files that are open elsewhere") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	succeed(t, "checkpoint", "verify", run)
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(first, filepath.Join(run, ".step-00000002.pruned")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(run, ".step-00000003.tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	fillDisk(filepath.Join(run, ".step-00000003.tmp", "rank-00000-of-00001.safetensors"))
	if got := launch(resumeUntil(run, "0", 3)...); got.code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", got.code, got.errOut)
	}
	succeed(t, "checkpoint", "verify", run)
	if left, _ := filepath.Glob(filepath.Join(run, "*step-*")); len(left) != 1 || filepath.Base(left[0]) != "step-00000003" {
		t.Errorf("%q is left", left)
	}
}

// writers passes on every line to several writers.
type writers []*watcher

func (w writers) Write(line []byte) (int, error) {
	for _, each := range w {
		each.Write(line)
	}
	return len(line), nil
}

// The default saves by time, and the flag takes steps and times.
func TestSaveEvery(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil || cfg.SaveEvery.String() != "10m" {
		t.Errorf("the default is %v (%v)", cfg.SaveEvery, err)
	}
	for _, bad := range []string{"often", "-1", "10", "1ms", "-10m"} {
		args := []string{"train", "--dry-run", "--save-every", bad}
		if bad == "10" {
			if out := succeed(t, args...); !strings.Contains(out, "save_every = '10'") {
				t.Errorf("the configuration is %s", out)
			}
			continue
		}
		refuse(t, cli.ExitUsage, args, bad, "save-every", "a number of steps (500), a time (10m, 90s, 2h) or 0")
	}
	if out := succeed(t, "train", "--dry-run", "--save-every", "1h"); !strings.Contains(out, "save_every = '1h'") {
		t.Errorf("the configuration is %s", out)
	}
}
