package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// Ranks that are processes start from weights like those that are goroutines, and so does one that
// takes another's place before there is a checkpoint.
func TestInitFromProcesses(t *testing.T) {
	data := text(t)
	golden, err := filepath.Abs(goldenV3)
	if err != nil {
		t.Fatal(err)
	}
	args := func(out string, more ...string) []string {
		line := "train -np 4 --steps 5 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --set log_every=1 --init-from " + golden + " --data " + data + " --out " + out
		return append(strings.Fields(line), more...)
	}
	goroutines := filepath.Join(t.TempDir(), "run")
	succeed(t, args(goroutines)...)
	want := shardsAt(t, goroutines, 5)
	healed := filepath.Join(t.TempDir(), "run")
	b := &beginning{do: func(pids []int) { syscall.Kill(pids[1], syscall.SIGKILL) }}
	if code := run(context.Background(), args(healed, "--ranks", "process"), b, &b.errOut); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, b.errOut.String())
	}
	if n := strings.Count(b.errOut.String(), "replaces it"); n != 1 {
		t.Errorf("%d ranks were replaced: %s", n, b.errOut.String())
	}
	if !bytes.Equal(shardsAt(t, healed, 5), want) {
		t.Error("the state differs from that of ranks that are goroutines and that nothing disturbed")
	}
}
