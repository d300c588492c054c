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
	"spmoe/launcher/report/page"
	"spmoe/launcher/trainer/observe"
)

// rankKiller kills rank 0 when the first step is logged. When a later one is, it reads the page.
type rankKiller struct {
	beginning
	run  string
	page []byte // in the middle of the run
	dead bool
}

func (k *rankKiller) Write(line []byte) (int, error) {
	if !k.dead && bytes.Contains(line, []byte("step:")) {
		k.dead = true
		syscall.Kill(k.processes()[0], syscall.SIGKILL)
	}
	if k.page == nil {
		k.page, _ = os.ReadFile(filepath.Join(k.run, page.File))
	}
	return len(line), nil
}

// The page is there while the run goes on, and loads itself again. It outlives rank 0, and so does
// the trace.
func TestPageOutlivesRankZero(t *testing.T) {
	k := &rankKiller{run: filepath.Join(t.TempDir(), "run")}
	args := processRun(k.run, "--steps", "500", "--set", "log_every=1", "--report", "--trace", "steps=495..497")
	if code := run(context.Background(), args, k, &k.errOut); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, k.errOut.String())
	}
	if !bytes.Contains(k.page, []byte(`"reload":`)) {
		t.Errorf("the page of the run that went on does not load itself again: %.300s", k.page)
	}
	text, err := os.ReadFile(filepath.Join(k.run, page.File))
	if err != nil || strings.Count(string(text), `"event":"detected"`) != 1 || !strings.Contains(string(text), "was killed by signal 9") || strings.Contains(string(text), `"reload":`) {
		t.Errorf("the report does not tell of the failure (%v)", err)
	}
	if text, err = os.ReadFile(filepath.Join(k.run, observe.TraceFile)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"rank 0"`, `"name":"rank 3"`, `"name":"step 495"`, `"name":"step 497"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
	if n := strings.Count(string(text), `"cat":"step"`); n != 3*4 {
		t.Errorf("the trace has %d steps of ranks", n)
	}
}
