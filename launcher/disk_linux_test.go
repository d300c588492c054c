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

// A disk without the space for the run's checkpoints is refused before training starts. With keep 0
// there need be room for one.
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
	t.Chdir(t.TempDir())
	run = smallDisk(t, 1.5)
	if out := succeed(t, tiny(data, "--out", run, "--set", "keep=0", "--save-every", "1")...); strings.Contains(out, "ALARM") || strings.Count(out, "saved") < 3 {
		t.Errorf("with keep 0: %s", out)
	}
}

// A disk that fills up while a run goes on and is freed after its last step loses nothing: neither
// the state nor the record. A run that gives up says what is lost, with an exit code of its own,
// also if its ranks have all been replaced.
func TestDiskFull(t *testing.T) {
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
	got := launchTo(t.Context(), io.MultiWriter(fill, free), tiny(data, "-np", "2", "--out", run, "--steps", "40")...)
	if got.code != cli.ExitOK || fill.do != nil || free.do != nil || strings.Contains(got.errOut, "not complete") {
		t.Fatalf("exit code %d: %s\n%s", got.code, got.errOut, got.out)
	}
	log, err := record.Read(run)
	if err != nil || len(log.Steps) != 40 || log.Done == nil {
		t.Errorf("the record has %d steps (%v)", len(log.Steps), err)
	}
	verify(t, filepath.Join(run, "step-00000040"))

	t.Chdir(t.TempDir())
	run = smallDisk(t, 8)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := &beginning{do: func(ranks []int) {
		fillDisk(filepath.Join(filepath.Dir(run), "filler"))
		for _, pid := range ranks {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}}
	giveUp := &watcher{[]string{"ALARM", "trying again for"}, cancel}
	code := launchTrain(ctx, processRun(run, "--steps", "40", "--set", "log_every=1", "--restarts", "9"), nil, io.MultiWriter(begun, giveUp), &begun.errOut)
	if text := begun.errOut.String(); code != cli.ExitUnsaved || !strings.Contains(text, "replaces it") || !strings.Contains(text, "no space left on device") ||
		!strings.Contains(text, "the checkpoint of step 40, the last of this run, was not saved") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
