package page

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
)

const hostile = "</script></pre><script>alert(1)</script>&\x00\x1b\"'"

// write makes the folder of a run, and returns it.
func write(t testing.TB, folder string, steps int) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	w, err := record.Open(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := record.Start{
		Time: 1.8e9, CPU: "some CPU " + strings.ReplaceAll(hostile, "\x00\x1b", ""), Tier: "avx2", Cores: 8, Version: "abc", Ranks: 2,
		Tokens: 2048, BytesPerToken: 2, FLOPs: 1.7e7, Peak: 4e11,
	}
	w.Start(start)
	w.Eval(record.Eval{Loss: 6, BitsPerByte: 4.5, Sequences: 4})
	for step := 1; step <= steps; step++ {
		if step == steps/2 {
			start.Step = step - 1
			w.Start(start)
		}
		s := record.Step{
			Step: step, Loss: record.Number(2 + 4/math.Sqrt(float64(step))), GradNorm: 0.4, LR: 1e-3, Imbalance: 1.3, Seconds: 0.2,
			Time: 1.8e9 + float64(step), Memory: 3 << 30,
		}
		if step == 7 {
			s.Loss, s.GradNorm, s.Skipped = record.Number(math.NaN()), record.Number(math.Inf(1)), true
		}
		w.Step(s)
		if step%20 == 0 || step == 1 {
			families := map[string]float64{"bf16 forward": 0.1, "attention": 0.02, "waiting": 0.05, "rest": 0.03}
			w.Phases(record.Phases{Step: step, Steps: 20, Seconds: 0.2, Families: families})
			w.Eval(record.Eval{Step: step, Loss: 3, BitsPerByte: 2.25, Sequences: 4})
		}
	}
	w.Times(record.Times{Steps: steps, Seconds: 0.2, Families: map[string]float64{"bf16 forward": 0.15, "rest": 0.05}})
	w.Sample(record.Sample{Step: steps, Prompt: "// New ", Text: hostile})
	w.Done(record.Done{Step: steps, HeldOut: 3, Gzip: 2.5})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	events := record.EventLog{Folder: folder}
	at := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	events.Add(spmd.Event{Time: at, Kind: spmd.Detected, Rank: 1, Process: 7, Step: 6, Reason: "killed " + hostile})
	events.Add(spmd.Event{Time: at, Kind: spmd.Resumed, Rank: -1, Step: 6, After: 4 * time.Millisecond})
	events.Add(spmd.Event{Time: at, Kind: spmd.Alarm, Rank: -1, Step: 7, Reason: "step 7 is skipped"})
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, folder, "config.toml", "flavor = 'debug'\nprecision = 'bf16'\n# <script>\n")
	return folder
}

func put(t testing.TB, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, folder string) Run {
	t.Helper()
	r, err := readRun(folder)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// check returns the HTML of a page and its data, and tests what is true of every page: the data can
// be read, ends where its element ends, and the page loads nothing.
func check(t testing.TB, p Page) (text, data string) {
	t.Helper()
	out, err := p.HTML()
	if err != nil {
		t.Fatal(err)
	}
	text = string(out)
	_, rest, _ := strings.Cut(text, `id="data">`)
	data, _, _ = strings.Cut(rest, "</script>")
	var back Page
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&back); err != nil || decoder.More() {
		t.Fatalf("the data: %v", err)
	}
	if at := regexp.MustCompile(`\bNaN\b|[+-]Inf\b|%!|\x00|\x1b`).FindString(data); at != "" {
		t.Errorf("the data has %q", at)
	}
	for _, address := range regexp.MustCompile(`(src=|href=|url\(|@import|\w+://)[^ <>]*`).FindAllString(strings.Replace(text, data, "", 1), -1) {
		if !strings.HasPrefix(address, "http://www.w3.org/") && !strings.HasPrefix(address, "url(#") && !strings.HasPrefix(address, `href="data:image/svg`) {
			t.Errorf("the page names %s", address)
		}
	}
	if n := strings.Count(text, "<script"); n != 2 {
		t.Errorf("the page has %d scripts", n)
	}
	return text, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(data)
}

func contains(t *testing.T, data string, has, lacks []string) {
	t.Helper()
	for _, text := range has {
		if !strings.Contains(data, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	for _, text := range lacks {
		if strings.Contains(data, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

// The page of a run has a curve of each quantity, and is small for a long run.
func TestRun(t *testing.T) {
	run := write(t, t.TempDir(), 1200)
	if err := WriteRun(run, 30); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(run, File))
	if err != nil {
		t.Fatal(err)
	}
	r := read(t, run)
	p := r.page()
	p.Reload = 30
	if text, _ := check(t, p); text != string(written) || len(text) > 1<<20 {
		t.Errorf("the page has %d bytes, the file %d", len(text), len(written))
	}
	if want := 1 / (2 * math.Ln2); math.Abs(r.Bits[0]-want) > 1e-9 { // tokens of 2 bytes
		t.Errorf("%g bits per byte are a nat per token, want %g", r.Bits[0], want)
	}
	for _, q := range append(record.Figures(), record.Quantity{Figure: "loss"}, record.Quantity{Figure: "validation"}) {
		if q.Place != record.Optional && len(r.Curves[q.Figure].X) == 0 {
			t.Errorf("the run has no curve %s", q.Figure)
		}
	}
}

// compose returns what the script makes of some pages of runs.
func compose(t *testing.T, pages map[string]Page) (composed map[string]string) {
	t.Helper()
	data, err := json.Marshal(pages)
	if err != nil {
		t.Fatal(err)
	}
	html, _ := check(t, Page{})
	load(t, []byte(html), 1280,
		fmt.Sprintf("return Object.fromEntries(Object.entries(%s).map(([name, p]) => [name, JSON.stringify(compose(p))]))", data), &composed)
	return composed
}

// Whatever is missing or broken in a run's folder, the rest is shown.
func TestBrowserIncomplete(t *testing.T) {
	line := func(text string) func(run string) { return func(run string) { put(t, run, record.File, text) } }
	remove := func(name string) func(run string) { return func(run string) { os.Remove(filepath.Join(run, name)) } }
	cases := map[string]struct {
		change     func(run string)
		has, lacks []string
	}{
		"whole": {func(string) {}, []string{
			`{"text":"done","class":"good"}`, "1 failed and replaced", "alarms: 1", `"debug","more":"in bf16"`, "2.5375", "122,880 tokens",
			`"10,240","more":"43.5% of the machine’s measured peak (MFU)"`, `"value":1,"more":"their gradients were not fit`, "4.0 ms after the failure was detected",
			"step 7 is skipped", "killed </script></pre>", `// New </script>`, "75%", "peak 400 GFLOP/s measured", `"resumed after steps","texts":[{"text":"29"}]`,
			"precision = 'bf16'", "2.2500 bits/byte; after step 60",
		}, nil},
		"under way": {func(run string) {
			text, err := os.ReadFile(filepath.Join(run, record.File))
			if err != nil {
				t.Fatal(err)
			}
			put(t, run, record.File, string(regexp.MustCompile(`(?m)^\{"done".*\n`).ReplaceAll(text, nil)))
			put(t, run, "config.toml", "flavor = 'debug'\nsteps = 100\n")
		}, []string{`"step 60 of 100, about 8s left","class":"warn"`, `"60 of 100"`}, []string{`"done"`}}, // 40 steps of 0.2 s
		"empty record": {line(""), []string{"no step yet"}, []string{`"charts"`, "Where the time goes"}},
		"only a start": {line(`{"start":{"step":0}}` + "\n"), []string{"no step yet"}, []string{`"charts"`}},
		"one step":     {line(`{"step":{"step":1,"loss":3,"seconds":1}}` + "\n"), []string{"1 step made", `"id":"loss"`}, []string{`"id":"speed"`, "bits/byte"}},
		"old record": {line(`{"start":{"step":0,"cpu":"x"}}` + "\n" + `{"step":{"step":1,"loss":3,"grad_norm":1,"seconds":1}}` + "\n"),
			[]string{`"grad-norm"`}, []string{`"tokens/s"`, `"memory"`}},
		"nothing finite": {line(`{"step":{"step":1,"loss":null,"grad_norm":null}}` + "\n" + `{"eval":{"step":1,"loss":null}}` + "\n"),
			[]string{"1 step made"}, []string{`"id":"loss"`}},
		"no time":          {line(`{"start":{"step":0,"tokens":5,"peak":0}}` + "\n" + `{"step":{"step":1,"loss":3,"seconds":0}}` + "\n"), nil, []string{`"id":"speed"`}},
		"huge numbers":     {line(`{"step":{"step":9007199254740992,"loss":-1e100,"grad_norm":1e100,"lr":-1e100,"seconds":1e-300}}` + "\n"), []string{`"id":"loss"`}, nil},
		"no configuration": {remove("config.toml"), []string{`"id":"loss"`}, []string{`"summary":"configuration"`}},
		"broken events":    {func(run string) { put(t, run, record.EventsFile, "x\n") }, []string{"not shown", "events.jsonl:1"}, []string{"Alarms and failures"}},
		"no events":        {remove(record.EventsFile), nil, []string{"Alarms and failures", "alarms:"}},
	}
	pages := map[string]Page{}
	for name, c := range cases {
		run := write(t, t.TempDir(), 60)
		c.change(run)
		p := read(t, run).page()
		p.Reload = 30
		pages[name] = p
		check(t, p)
	}
	composed := compose(t, pages)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { contains(t, composed[name], c.has, c.lacks) })
	}
	if _, err := readRun(t.TempDir()); err == nil || !strings.Contains(err.Error(), "give the folder of a run") {
		t.Errorf("no record: error %v", err)
	}
}

// A browser draws every chart of every page at the width of a desk and of a phone, without cutting
// anything off.
func TestBrowser(t *testing.T) {
	html, _ := check(t, read(t, write(t, t.TempDir(), 200)).page())
	for _, width := range []int{1280, 390} {
		if got := look(t, []byte(html), width); len(got) != 7 {
			t.Errorf("%d charts: %q", len(got), got)
		}
	}
}

// Whatever a record and events say, they are refused or shown.
func FuzzPage(f *testing.F) {
	f.Add([]byte(`{"step":{"step":1,"loss":3}}`+"\n"+`{"load":{"step":1,"layer":65535,"tokens":[1,2],"bias":[3e38,-1]}}`+"\n"), []byte(`{"event":"alarm"}`+"\n"))
	f.Add([]byte(`{"phases":{"step":1,"families":{"x":1e100}}}`+"\n"+`{"phases":{"step":0,"families":{"bf16 x":1e100}}}`+"\n"), []byte{})
	f.Add([]byte(`{"start":{"step":3,"tokens":9007199254740992,"flops":1e100,"peak":1e-100}}`+"\n"+`{"step":{"step":4,"seconds":1e-100}}`+"\n"), []byte{})
	f.Add([]byte(`{"times":{"steps":1,"seconds":1e-300,"families":{"a":1e100}}}`+"\n"+`{"sample":{"step":0,"text":"<b>"}}`+"\n"), []byte{})
	f.Fuzz(func(t *testing.T, metrics, events []byte) {
		run := t.TempDir()
		put(t, run, record.File, string(metrics))
		put(t, run, record.EventsFile, string(events))
		r, err := readRun(run)
		if err != nil {
			return
		}
		check(t, r.page())
	})
}
