package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/report/overview"
	"spmoe/launcher/trace"
)

// scraper asks the live page of a run for its metrics, when its first step is logged and when a
// later one is; in between it kills rank 0.
type scraper struct {
	t *testing.T
	beginning
	late  string // line of the later step
	first string // metrics
	last  string
}

func (s *scraper) Write(line []byte) (int, error) {
	if s.first == "" && bytes.Contains(line, []byte("step:")) {
		s.first = s.get("/metrics")
		syscall.Kill(s.processes()[0], syscall.SIGKILL)
	}
	if s.last == "" && bytes.Contains(line, []byte(s.late)) {
		s.last = s.get("/metrics")
	}
	return len(line), nil
}

func (s *scraper) get(path string) string {
	s.t.Helper()
	m := regexp.MustCompile(`live page at (http://127\.0\.0\.1:\d+)/\n`).FindStringSubmatch(s.errOut.String())
	if m == nil {
		s.t.Fatalf("no address in %q", s.errOut.String())
	}
	response, err := http.Get(m[1] + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Errorf("%s: %d %s (%v)", path, response.StatusCode, text, err)
	}
	return string(text)
}

// The live page outlives rank 0: it goes on with the process that takes its place. So do trace and
// report.
func TestLivePageOutlivesRankZero(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	s := &scraper{t: t, late: "step: 58"}
	if code := run(context.Background(), processRun(out, "--steps", "60", "--log-every", "1", "--http", "127.0.0.1:0", "--report", "--trace", "steps=55..57"), s, &s.errOut); code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.errOut.String())
	}
	if !strings.Contains(s.first, "\nspmoe_starts_total 1\n") || !strings.Contains(s.last, "\nspmoe_starts_total 2\n") ||
		!strings.Contains(s.last, `spmoe_events_total{event="detected"} 1`) || !strings.Contains(s.last, `spmoe_events_total{event="resumed"} 1`) {
		t.Errorf("at first\n%s\nand at last\n%s", s.first, s.last)
	}
	if !regexp.MustCompile(`\nspmoe_steps_total 5[78]\n`).MatchString(s.last) {
		t.Errorf("the last step is not told: %s", s.last)
	}
	page, err := os.ReadFile(filepath.Join(out, overview.File))
	if err != nil || !strings.Contains(string(page), "1 failed and replaced") || !strings.Contains(string(page), "was killed by signal 9") {
		t.Errorf("the report does not tell of the failure (%v)", err)
	}
	text, err := os.ReadFile(filepath.Join(out, trace.File))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"rank 0"`, `"name":"rank 3"`, `"name":"step 55"`, `"name":"step 57"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
	if n := strings.Count(string(text), `"cat":"step"`); n != 3*4 {
		t.Errorf("the trace has %d steps of ranks", n)
	}
}
