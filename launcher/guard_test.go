package main

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/spmd"
)

// A run whose steps are skipped ends with the code that says not to start it again, and names them;
// what it has saved is whole.
func TestSkipsEndRun(t *testing.T) {
	data := text(t)
	for _, ranks := range []string{"goroutine", "process"} {
		out := filepath.Join(t.TempDir(), "run")
		got := launch(tiny(data, "-np", "2", "--ranks", ranks, "--out", out, "--steps", "20", "--optimizer.lr", "1e30", "--set", "optimizer.warmup=0", "--set", "guard.skips=2")...)
		if want := "were skipped, more than 2 of 100 (guard.skips)"; got.code != spmd.DoNotRestart || !strings.Contains(got.errOut, want) {
			t.Errorf("%s ranks: exit code %d, errors %q, want code %d and %q", ranks, got.code, got.errOut, spmd.DoNotRestart, want)
		}
		if n := strings.Count(got.out, "is skipped and changes no weight"); n != 3 {
			t.Errorf("%s ranks: %d alarms of 3 in\n%s", ranks, n, got.out)
		}
		succeed(t, "checkpoint", "verify", out)
	}
}

// A run that ends without finite losses has failed.
func TestDiverged(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for _, kind := range []string{"goroutine", "process"} {
		got := launch(tiny(data, "-np", "2", "--ranks", kind, "--optimizer.lr", "1e18", "--out", kind)...)
		if got.code != cli.ExitFailed || !strings.Contains(got.errOut, "loss of NaN") || !strings.Contains(got.errOut, "lower --optimizer.lr") || strings.Count(got.errOut, "the run ended") != 1 {
			t.Errorf("%s: exit code %d, errors %q", kind, got.code, got.errOut)
		}
		// Nothing is left to do, and that is no success.
		if again := launch("train", "--resume", "--out", kind); again.code != cli.ExitFailed || !strings.Contains(again.out, "is complete") || !strings.Contains(again.errOut, "loss of NaN") {
			t.Errorf("%s, again: %+v", kind, again)
		}
	}
}

// Keys of the guards of earlier versions are taken from files, and named on command lines.
func TestOldGuardKeys(t *testing.T) {
	for memory, every := range map[string]string{"1": "every = 1", "0": "every = 0", "16": "every = 16"} {
		path := write(t, "config.toml", "steps = 7\n[guard]\nspike = 100.0\nskips = 5\nmemory = "+memory+"\nactivations = 1\nreplay = 0\n")
		got := succeed(t, "train", "--config", path, "--dry-run")
		for _, want := range []string{every, "replay = 0"} {
			if !strings.Contains(got, want) {
				t.Errorf("memory %s: no %q in\n%s", memory, want, got)
			}
		}
	}
	for key, want := range map[string]string{"guard.memory": "it is guard.every now", "guard.activations": "--set guard.replay=N"} {
		if got := launch("train", "--set", key+"=1"); got.code != cli.ExitUsage || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v", key, got)
		}
	}
}
