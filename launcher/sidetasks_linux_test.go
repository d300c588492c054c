package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report/page"
	"spmoe/launcher/spmd"
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

// address returns the address of the live page.
func (s *scraper) address() string {
	s.t.Helper()
	m := regexp.MustCompile(`live page at (http://127\.0\.0\.1:\d+)/\n`).FindStringSubmatch(s.errOut.String())
	if m == nil {
		s.t.Fatalf("no address in %q", s.errOut.String())
	}
	return m[1]
}

func (s *scraper) get(path string) string {
	s.t.Helper()
	response, err := http.Get(s.address() + path)
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

// Clients that stay connected to the live page leave the launcher enough descriptors to replace a
// rank, also where it may open few files.
func TestIdleClientsLeaveRoomForRanks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := processRun(out, "--steps", "200", "--log-every", "1", "--http", "127.0.0.1:0")
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 64 && exec "$0" "$@"`, program}, args...)...)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	s := &scraper{t: t}
	idle := &watcher{words: []string{"step:"}, do: func() {
		for range 100 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
		client := http.Client{Timeout: 20 * time.Second}
		if _, err := client.Get(s.address() + "/healthz"); err != nil { // all of them have been accepted
			t.Error(err)
		}
		syscall.Kill(s.processes()[2], syscall.SIGKILL)
	}}
	cmd.Stdout, cmd.Stderr = idle, &s.errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, s.errOut.String())
	}
	events, err := record.ReadEvents(out)
	if err != nil || !slices.ContainsFunc(events, func(e spmd.Event) bool { return e.Kind == spmd.Redone }) {
		t.Errorf("the rank was not replaced: %v (%v)", events, err)
	}
}

// The live page outlives rank 0: it goes on with the process that takes its place. So do trace and
// report.
func TestLivePageOutlivesRankZero(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	s := &scraper{t: t, late: "step: 58"}
	if code := run(context.Background(), processRun(out, "--steps", "60", "--log-every", "1", "--http", "127.0.0.1:0", "--report", "--trace", "steps=55..57"), s, &s.errOut); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, s.errOut.String())
	}
	if !strings.Contains(s.first, "\nspmoe_starts_total 1\n") || !strings.Contains(s.last, "\nspmoe_starts_total 2\n") ||
		!strings.Contains(s.last, `spmoe_events_total{event="detected"} 1`) || !strings.Contains(s.last, `spmoe_events_total{event="resumed"} 1`) {
		t.Errorf("at first\n%s\nand at last\n%s", s.first, s.last)
	}
	if !regexp.MustCompile(`\nspmoe_steps_total 5[78]\n`).MatchString(s.last) {
		t.Errorf("the last step is not told: %s", s.last)
	}
	page, err := os.ReadFile(filepath.Join(out, page.File))
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
