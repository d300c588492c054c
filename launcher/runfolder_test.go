package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
)

// While a run goes on, no other one writes to its folder, and reading it is allowed.
func TestTwoRunsOneFolder(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, "--out", "run", "--save-every", "2", "--set", "keep=9", "--set=save_async=false")
	tries := &watcher{[]string{"step: 5 "}, func() { // the run waits until do returns
		before := files(t, ".")
		inUse := []string{"run is in use by process ", fmt.Sprint(os.Getpid()), " on host ", "another --out"}
		for _, second := range [][]string{args, append(args, "--seed", "9"), append(args, "--ranks", "process"), {"train", "--resume", "--out", "run"}, {"compare", "--out", "run", "--data", data}} {
			refuse(t, cli.ExitUsage, second, inUse...)
		}
		verify(t, "run")
		for _, reader := range [][]string{
			{"generate", "--checkpoint", "run", "--prompt", "the", "--max-tokens", "4"},
			{"eval", "--checkpoint", "run", "--data", data, "--max-tokens", "200"}, append(args, "--dry-run"),
		} {
			if got := launch(reader...); got.code != cli.ExitOK {
				t.Errorf("%q: exit code %d: %s", reader, got.code, got.errOut)
			}
		}
		same(t, files(t, "."), before)
	}}
	got := launchTo(context.Background(), tries, args...)
	if got.code != cli.ExitOK || got.errOut != "" || tries.do != nil {
		t.Fatalf("exit code %d: %s", got.code, got.errOut)
	}
	if _, err := os.Lstat("run/.lock"); !os.IsNotExist(err) {
		t.Errorf("the lock of a run that has ended: %v", err)
	}
	if log, err := record.Read("run"); err != nil || len(log.Steps) != 6 || len(log.Starts) != 1 {
		t.Errorf("the record: %v", err)
	}
}

// Runs without --out that start at the same time get folders of their own.
func TestTwoNewRuns(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	var second outcome
	succeedTo := &watcher{[]string{"step: 1 "}, func() { second = launch(tiny(data)...) }}
	first := launchTo(context.Background(), succeedTo, tiny(data)...)
	if first.code != cli.ExitOK || second.code != cli.ExitOK || !strings.Contains(second.out, "runs/debug-2") {
		t.Errorf("exit codes %d and %d: %s%s", first.code, second.code, first.errOut, second.errOut)
	}
}

// The record of a run that has died before its first checkpoint is kept.
func TestOldRecordIsKept(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, "--out", "run", "--steps", "2")
	succeed(t, args...)
	for _, name := range []string{"metrics.jsonl.old", "metrics.jsonl.old-2"} {
		if err := os.RemoveAll("run/step-00000002"); err != nil { // as if it had died before
			t.Fatal(err)
		}
		before, err := os.ReadFile("run/metrics.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		got := launch(args...)
		if want := "run has the record of an earlier run without a checkpoint: it is now " + name + "\n"; got.code != cli.ExitOK || !strings.Contains(got.errOut, want) {
			t.Fatalf("exit code %d: %s, want %q", got.code, got.errOut, want)
		}
		if now, err := os.ReadFile("run/" + name); err != nil || !bytes.Equal(now, before) {
			t.Errorf("%s: %d bytes, want %d (%v)", name, len(now), len(before), err)
		}
	}
}
