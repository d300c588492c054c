package main

// Run folders from an untrusted source: links, pipes and forged manifests.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/launcher/cli"
)

// makePipe creates a named pipe without a writer.
func makePipe(path string) error { return syscall.Mkfifo(path, 0o666) }

// soon is launch for a command that must not hang.
func soon(t *testing.T, args ...string) outcome {
	t.Helper()
	ended := make(chan outcome, 1)
	go func() { ended <- launch(args...) }()
	select {
	case got := <-ended:
		return got
	case <-time.After(2 * time.Minute):
		t.Fatalf("%q hangs", args)
		return outcome{}
	}
}

// Links in a run's folder lead no write out of it, whatever they stand for.
func TestLinksInRun(t *testing.T) {
	data := text(t)
	for _, name := range []string{
		"tensorboard", "report.html", "config.toml", "metrics.jsonl", "events.jsonl", ".lock", "step-00000002", ".step-00000002.tmp", "tokenizer.json",
		"tensorboard/events.out.tfevents.spmoe",
	} {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			t.Chdir(t.TempDir())
			victim := t.TempDir()
			file := write(t, filepath.Join(victim, "file"), "{\"start\":{\"step\":0,\"cpu\":\"\",\"tier\":\"\",\"cores\":1,\"version\":\"\"}}\n")
			to := file
			if name == "tensorboard" || strings.HasPrefix(strings.TrimPrefix(name, "."), "step-") {
				to = victim
			}
			path := filepath.Join("run", name)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
			before := files(t, victim)
			got := soon(t, append(tiny(data, "--steps", "2", "--out", "run", "--set", "save_retry=0s"), "--report=true")...)
			if got.code == cli.ExitOK {
				soon(t, "inspect", "run", "--html")
			}
			same(t, files(t, victim), before)
			if name != ".lock" && got.code != cli.ExitOK { // the rest is written, with a warning at most
				t.Errorf("exit code %d: %s", got.code, got.errOut)
			}
		})
	}
}

// Pipes in place of files block nothing.
func TestPipesInRun(t *testing.T) {
	t.Chdir(t.TempDir())
	succeed(t, tiny(text(t), "--steps", "2", "--out", "made")...)
	for _, name := range []string{
		"step-00000002/manifest.json", "step-00000002/config.toml", "step-00000002/rank-00000-of-00001.safetensors", "metrics.jsonl", "events.jsonl", "config.toml", ".lock",
	} {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			path, inCheckpoint := filepath.Join("run", name), strings.HasPrefix(name, "step-")
			if err := errors.Join(os.RemoveAll("run"), os.CopyFS("run", os.DirFS("made")), os.RemoveAll(path), syscall.Mkfifo(path, 0o666)); err != nil {
				t.Fatal(err)
			}
			if got := soon(t, "inspect", "--verify", "run"); inCheckpoint && (got.code != cli.ExitFailed || !strings.Contains(got.out, "is not a regular file")) || !inCheckpoint && got.code != cli.ExitOK {
				t.Errorf("verify: exit code %d: %s%s", got.code, got.out, got.errOut)
			}
			soon(t, "inspect", "run")
			soon(t, "inspect", "run", "--html")
			soon(t, "generate", "--checkpoint", "run/step-00000002", "--prompt", "a", "--max-tokens", "2")
			again := soon(t, "train", "--resume", "--steps", "4", "--save-every", "1", "--out", "run", "--set", "save_retry=0s")
			if inCheckpoint && (again.code != cli.ExitUsage || !strings.Contains(again.errOut, "not a regular file")) {
				t.Errorf("resume: exit code %d: %s", again.code, again.errOut)
			}
		})
	}
}
