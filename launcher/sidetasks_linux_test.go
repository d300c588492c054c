package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report/page"
	"spmoe/launcher/trainer/observe"
)

// The page is there while the run goes on, and loads itself again. It outlives rank 0, and so does
// the trace.
func TestPageOutlivesRankZero(t *testing.T) {
	t.Parallel()
	run := filepath.Join(t.TempDir(), "run")
	p := prepare(t, "", processRun(run, "--steps", "100000", "--set", "log_every=1", "--report", "--trace", "steps=95..97")...).begin(t)
	await(t, "a step", func() bool { return strings.Contains(p.log.String(), "step: ") })
	syscall.Kill(processesIn(p.errOut.String())[0], syscall.SIGKILL)
	read := func(name string) []byte {
		text, _ := os.ReadFile(filepath.Join(run, name))
		return text
	}
	await(t, "a page that loads itself again", func() bool { return bytes.Contains(read(page.File), []byte(`"reload":`)) })
	await(t, "the last step of the trace", func() bool { return bytes.Contains(read(record.File), []byte(`"step":98,`)) })
	p.Process.Signal(syscall.SIGINT)
	if code := p.end(); code != cli.ExitInterrupted {
		t.Fatalf("exit code %d: %s", code, p.errOut.String())
	}
	text := string(read(page.File))
	if strings.Count(text, `"event":"detected"`) != 1 || !strings.Contains(text, "was killed by signal 9") || strings.Contains(text, `"reload":`) {
		t.Errorf("the report does not tell of the failure: %.300s", text)
	}
	trace := string(read(observe.TraceFile))
	for _, want := range []string{`"name":"rank 0"`, `"name":"rank 3"`, `"name":"step 95"`, `"name":"step 97"`} {
		if !strings.Contains(trace, want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
	if n := strings.Count(trace, `"cat":"step"`); n != 3*4 {
		t.Errorf("the trace has %d steps of ranks", n)
	}
}
