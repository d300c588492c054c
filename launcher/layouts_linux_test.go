package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
)

// stateSum returns the checksum of the state that a run has saved after a step.
func stateSum(t *testing.T, run string, step int) string {
	t.Helper()
	sums, err := checking.StateOf(filepath.Join(run, fmt.Sprintf("step-%08d", step)))
	if err != nil {
		t.Fatal(err)
	}
	return sums.All
}

// Rank processes train the bits of goroutine ranks in every layout, also if one is killed.
func TestLayoutsOfProcesses(t *testing.T) {
	for _, settings := range []string{"--precision bf16", "--precision mxfp8 --batch 8 --micro-batch 1 --recompute selective"} {
		t.Run(settings, func(t *testing.T) { layoutsOfProcesses(t, strings.Fields(settings)) })
	}
}

func layoutsOfProcesses(t *testing.T, settings []string) {
	const steps = 5
	start := func(to io.Writer, errs io.Writer, more ...string) (out string, code int) {
		out = filepath.Join(t.TempDir(), "run")
		return out, run(t.Context(), processRun(out, slices.Concat([]string{"--steps", fmt.Sprint(steps), "--set", "log_every=1"}, settings, more)...), to, errs)
	}
	finished := func(more ...string) (sum string, losses []byte) {
		var errs bytes.Buffer
		out, code := start(io.Discard, &errs, more...)
		if code != cli.ExitOK {
			t.Fatalf("%v: exit code %d: %s", more, code, errs.String())
		}
		return stateSum(t, out, steps), outcomes(t, out)
	}
	want, losses := finished("--ranks", "goroutine")
	for _, layout := range []string{"--ep 1", "--set dp_replicate=2 --ep 2"} {
		if got, of := finished(strings.Fields(layout)...); got != want || !bytes.Equal(of, losses) {
			t.Errorf("%s: state %s, want %s", layout, got, want)
		}
	}
	b := &beginning{do: func(pids []int) { syscall.Kill(pids[0], syscall.SIGKILL); syscall.Kill(pids[3], syscall.SIGKILL) }}
	killed, code := start(b, &b.errOut, "--ep", "2", "--spares", "1")
	if code != cli.ExitOK || !strings.Contains(b.errOut.String(), "replaces it") {
		t.Fatalf("exit code %d: %s", code, b.errOut.String())
	}
	if got := stateSum(t, killed, steps); got != want || !bytes.Equal(outcomes(t, killed), losses) {
		t.Errorf("two ranks killed: state %s, want %s", got, want)
	}
}
