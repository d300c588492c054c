package page

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"spmoe/launcher/record"
)

// listen shows the run of a folder for the length of a test.
func listen(t *testing.T, run string, withPprof bool) (address string) {
	t.Helper()
	s, err := Listen(ServerConfig{Address: "127.0.0.1:0", Run: run, Connections: 16, Pprof: withPprof})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

// ask makes a request, whose Host header is that of the address unless another is given.
func ask(t *testing.T, method, address, path, host string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Host = host
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

func begin(t *testing.T, run string, from int) *record.Writer {
	t.Helper()
	w, err := record.Open(run, from)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(record.Start{Step: from, CPU: "a \"CPU\" \\ x", Tier: "avx2", Version: "v", Ranks: 4, Tokens: 1000, FLOPs: 2e6, Peak: 1e10})
	return w
}

func flush(t *testing.T, w *record.Writer) {
	t.Helper()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// samples reads the format of Prometheus, strictly.
func samples(t *testing.T, text string) map[string]float64 {
	t.Helper()
	head := regexp.MustCompile(`^# (HELP|TYPE) ([a-z_]+) (.+)$`)
	line := regexp.MustCompile(`^([a-z_]+)(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? (\S+)$`)
	typed, all := map[string]bool{}, map[string]float64{}
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		if m := head.FindStringSubmatch(in.Text()); m != nil {
			if m[1] == "TYPE" {
				if typed[m[2]] || m[3] != "gauge" && m[3] != "counter" || (m[3] == "counter") != strings.HasSuffix(m[2], "_total") {
					t.Errorf("%q", in.Text())
				}
				typed[m[2]] = true
			}
			continue
		}
		m := line.FindStringSubmatch(in.Text())
		if m == nil || !typed[m[1]] {
			t.Fatalf("not of the format, or without a type: %q", in.Text())
		}
		value, err := strconv.ParseFloat(m[5], 64)
		if _, twice := all[m[1]+m[2]]; err != nil || twice {
			t.Errorf("%q (%v)", in.Text(), err)
		}
		all[m[1]+m[2]] = value
	}
	return all
}

// A scrape tells the newest of each kind, also after the run went back.
func TestMetrics(t *testing.T) {
	run := t.TempDir()
	address := listen(t, run, false)
	response, text := ask(t, "GET", address, "/metrics", "", nil)
	if response.StatusCode != 200 || text != "" || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("before the run: %d %q, of type %q", response.StatusCode, text, response.Header.Get("Content-Type"))
	}
	w := begin(t, run, 0)
	for step := 1; step <= 5; step++ {
		w.Step(record.Step{Step: step, Loss: record.Number(10 - step), GradNorm: 0.5, LR: 1e-3, Imbalance: 1.5, Seconds: 0.5, Time: 1.8e9, Skipped: step == 4})
	}
	w.Eval(record.Eval{Step: 5, Loss: 5.5, Sequences: 4, Tasks: []record.Task{
		{Task: "words", Form: "LAMBADA", Items: 4, Metrics: map[string]record.Number{"acc": 0.25, "perplexity": 40}},
	}})
	w.Load(record.Load{Step: 5, Layer: 3, Tokens: []int64{7, 0}})
	w.Phases(record.Phases{Step: 5, Steps: 4, Seconds: 1, Families: map[string]float64{"bf16 forward": 0.75}})
	flush(t, w)
	if err := os.WriteFile(filepath.Join(run, record.EventsFile), []byte(`{"event":"alarm","step":1}`+"\n"+`{"event":"alarm","step":2}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	check := func(want map[string]float64) {
		t.Helper()
		_, text := ask(t, "GET", address, "/metrics", "", nil)
		got := samples(t, text)
		for name, v := range want {
			if value, ok := got[name]; !ok || value != v {
				t.Errorf("%s is %v (%v), want %v", name, value, ok, v)
			}
		}
	}
	check(map[string]float64{
		"spmoe_steps_total": 5, "spmoe_tokens_total": 5000, "spmoe_steps_skipped_total": 1, "spmoe_loss": 5, "spmoe_held_out_loss": 5.5,
		"spmoe_tokens_per_second": 2000, "spmoe_mfu_ratio": 0.4, "spmoe_run_done": 0, "spmoe_starts_total": 1,
		`spmoe_run_info{cpu="a \"CPU\" \\ x",tier="avx2",version="v",ranks="4"}`: 1,
		`spmoe_expert_tokens{layer="3",expert="0"}`:                              7,
		`spmoe_phase_seconds{phase="bf16 forward"}`:                              0.75,
		`spmoe_task{task="words",metric="acc"}`:                                  0.25,
		`spmoe_events_total{event="alarm"}`:                                      2, `spmoe_events_total{event="detected"}`: 0,
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = begin(t, run, 2)
	w.Step(record.Step{Step: 3, Loss: 9.5, Seconds: 0.5, Time: 1.9e9})
	w.Done(record.Done{Step: 3})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check(map[string]float64{"spmoe_steps_total": 3, "spmoe_steps_skipped_total": 0, "spmoe_loss": 9.5, "spmoe_starts_total": 2, "spmoe_run_done": 1})
}

// The page is there before the run is, changes with it, and is not sent again where it has not.
func TestPage(t *testing.T) {
	run := filepath.Join(t.TempDir(), "my run")
	address := listen(t, run, false)
	response, text := ask(t, "GET", address, "/", "", nil)
	if response.StatusCode != 200 || !strings.Contains(text, "no step yet") || !strings.Contains(text, `"live":true`) {
		t.Errorf("before the run: %d %.300s", response.StatusCode, text)
	}
	if err := os.Mkdir(run, 0o777); err != nil {
		t.Fatal(err)
	}
	w := begin(t, run, 0)
	w.Step(record.Step{Step: 1, Loss: 3.25, Seconds: 1})
	flush(t, w)
	response, text = ask(t, "GET", address, "/report.json", "", nil)
	if !strings.HasPrefix(text, `{"title":"my run"`) || !strings.Contains(text, "3.2500") || response.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%v %.300s", response.Header, text)
	}
	same := http.Header{"If-None-Match": {response.Header.Get("ETag")}}
	if response, text := ask(t, "GET", address, "/report.json", "", same); response.StatusCode != http.StatusNotModified || text != "" {
		t.Errorf("unchanged: %d, %d bytes", response.StatusCode, len(text))
	}
	w.Step(record.Step{Step: 2, Loss: 3, Seconds: 1})
	flush(t, w)
	if response, _ := ask(t, "GET", address, "/report.json", "", same); response.StatusCode != 200 {
		t.Errorf("changed: %d", response.StatusCode)
	}
	if response, text := ask(t, "HEAD", address, "/", "", nil); response.StatusCode != 200 || text != "" {
		t.Errorf("HEAD: %d, %d bytes", response.StatusCode, len(text))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, record.File), []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/metrics"} {
		if response, text := ask(t, "GET", address, path, "", nil); response.StatusCode != 500 || !strings.Contains(text, "none of the known keys") {
			t.Errorf("%s of a broken record: %d %.200s", path, response.StatusCode, text)
		}
	}
}

// Nobody is let in who writes, or who came by another name; profiles are there only if they were
// asked for.
func TestGuarded(t *testing.T) {
	plain, profiled := listen(t, t.TempDir(), false), listen(t, t.TempDir(), true)
	for _, c := range []struct {
		address, method, path, host string
		want                        int
	}{
		{plain, "GET", "/", "", 200},
		{plain, "GET", "/", "localhost:1234", 200},
		{plain, "GET", "/", "127.0.0.1", 200},
		{plain, "GET", "/", "[::1]:80", 200},
		{plain, "GET", "/", "evil.example", 421},
		{plain, "GET", "/metrics", "evil.example:6006", 421},
		{plain, "GET", "/", "127.0.0.1.evil.example", 421},
		{plain, "GET", "/", "192.0.2.1", 421},
		{plain, "GET", "/", "0.0.0.0", 421},
		{plain, "POST", "/", "", 405},
		{plain, "DELETE", "/metrics", "", 405},
		{plain, "OPTIONS", "/", "", 405},
		{plain, "GET", "/healthz", "", 200},
		{plain, "GET", "/healthz", "evil.example", 421},
		{plain, "GET", "/nothing", "", 404},
		{plain, "GET", "/metrics.jsonl", "", 404},
		{plain, "GET", "/debug/pprof/", "", 404},
		{profiled, "GET", "/debug/pprof/", "", 200},
		{profiled, "GET", "/debug/pprof/goroutine?debug=1", "", 200},
		{profiled, "GET", "/debug/pprof/", "evil.example", 421},
		{profiled, "GET", "/debug/pprof/profile?seconds=3600", "", 400},
		{profiled, "GET", "/debug/pprof/trace?seconds=60.5", "", 400},
		{profiled, "GET", "/debug/pprof/heap?seconds=9e9", "", 400},
		{profiled, "GET", "/debug/pprof/profile?seconds=NaN", "", 400},
		{profiled, "GET", "/debug/pprof/trace?seconds=0.001", "", 200},
	} {
		if response, _ := ask(t, c.method, c.address, c.path, c.host, nil); response.StatusCode != c.want {
			t.Errorf("%s %s as %q: %d, want %d", c.method, c.path, c.host, response.StatusCode, c.want)
		}
	}
}

// Addresses that others could reach are refused, with what to do.
func TestListen(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:0": "ssh -L", ":6006": "not this machine's own", "192.0.2.1:80": "not this machine's own", "example.com:80": "not this machine's own",
		"[::]:80": "not this machine's own", "6006": "give one such as 127.0.0.1:6006", "": "is no address", "127.0.0.1": "is no address", "127.0.0.1:70000": "invalid port",
	} {
		if s, err := Listen(ServerConfig{Address: address, Run: "."}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", address, err, want)
			if err == nil {
				s.Close()
			}
		}
	}
	taken := listen(t, ".", false)
	if _, err := Listen(ServerConfig{Address: taken, Run: "."}); err == nil || !strings.Contains(err.Error(), "port 0 picks a free one") {
		t.Errorf("a port that is taken: error %v", err)
	}
}

// When the run has ended, the page is its report. A browser that has followed the
// run gets it before the server closes.
func TestFinish(t *testing.T) {
	run := t.TempDir()
	w := begin(t, run, 0)
	w.Step(record.Step{Step: 1, Loss: 3.25, Seconds: 1})
	flush(t, w)
	s, err := Listen(ServerConfig{Address: "127.0.0.1:0", Run: run, Connections: 16})
	if err != nil {
		t.Fatal(err)
	}
	address := s.Addr()
	if _, text := ask(t, "GET", address, "/report.json", "", nil); !strings.Contains(text, `"live":true`) {
		t.Error("the run has ended")
	}
	w.Done(record.Done{Step: 1})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() {
		s.Finish() // waits for the next request of the data
		closed <- s.Close()
	}()
	for !s.pages.finished.Load() {
		runtime.Gosched()
	}
	for _, path := range []string{"/", "/report.json"} {
		if _, text := ask(t, "GET", address, path, "", nil); strings.Contains(text, `"live":true`) || !strings.Contains(text, `"done"`) || strings.Contains(text, "Latest") {
			t.Errorf("%s after the end: %.300s", path, text)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
