package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// A rank that is replaced takes the run's own copy of the tokenizer: the file that the run was
// given is gone by then.
func TestHealingWithTokenizer(t *testing.T) {
	data := text(t)
	own := trainedTokenizer(t, data)
	args := func(out string) []string {
		return processRun(out, "--data", data, "--tokenizer", own, "--steps", "20", "--set", "log_every=1")
	}
	undisturbed, out := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	if got := launch(args(undisturbed)...); got.code != cli.ExitOK {
		t.Fatal(got.errOut)
	}
	b := &beginning{do: func(pids []int) {
		if err := os.Remove(own); err != nil {
			t.Error(err)
		}
		syscall.Kill(pids[1], syscall.SIGKILL)
	}}
	if code := run(context.Background(), args(out), b, &b.errOut); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, b.errOut.String())
	}
	if n := strings.Count(b.errOut.String(), "replaces it"); n != 1 {
		t.Errorf("%d ranks were replaced, want 1: %s", n, b.errOut.String())
	}
	if !bytes.Equal(shardsAt(t, out, 20), shardsAt(t, undisturbed, 20)) {
		t.Error("the final state differs from that of a run that nothing disturbed")
	}
}
