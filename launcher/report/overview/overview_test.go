package overview

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/spmd"
)

const hostile = "</pre><script>alert(1)</script>&\x00\x1b\"'"

// write makes the folder of a run of so many steps, and returns it.
func write(t testing.TB, steps, layers, experts int) string {
	t.Helper()
	run := t.TempDir()
	w, err := record.Open(run, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := record.Start{Time: 1.8e9, CPU: "some CPU " + strings.ReplaceAll(hostile, "\x00\x1b", ""), Tier: "avx2", Cores: 8, Version: "abc", Ranks: 2, Tokens: 2048, FLOPs: 1.7e7, Peak: 4e11}
	w.Start(start)
	w.Eval(record.Eval{Loss: 6, Sequences: 4, Tasks: answered(0.25)})
	for step := 1; step <= steps; step++ {
		if step == steps/2 {
			start.Step = step - 1
			w.Start(start)
		}
		s := record.Step{Step: step, Loss: record.Number(2 + 4/math.Sqrt(float64(step))), GradNorm: 0.4, LR: 1e-3, Imbalance: 1.3, Seconds: 0.2, Time: 1.8e9 + float64(step)}
		if step == 7 {
			s.Loss, s.GradNorm, s.Skipped = record.Number(math.NaN()), record.Number(math.Inf(1)), true
		}
		w.Step(s)
		if step%20 == 0 || step == 1 {
			for layer := 1; layer <= layers; layer++ {
				load := record.Load{Step: step, Layer: layer}
				for e := range experts {
					load.Tokens, load.Bias = append(load.Tokens, int64(e*step)), append(load.Bias, float32(e-experts/2)*1e-3)
				}
				w.Load(load)
			}
			w.Phases(record.Phases{Step: step, Steps: 20, Seconds: 0.2, Families: map[string]float64{"bf16 forward": 0.1, "attention": 0.02, "waiting": 0.05, "rest": 0.03}})
			w.Eval(record.Eval{Step: step, Loss: 3, Sequences: 4, Tasks: answered(0.5)})
		}
	}
	w.Times(record.Times{Steps: steps, Seconds: 0.2, Families: map[string]float64{"bf16 forward": 0.15, "rest": 0.05}})
	w.Sample(record.Sample{Step: steps, Prompt: "// New ", Text: hostile})
	w.Done(record.Done{Step: steps, HeldOut: 3})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	events := record.EventLog{Folder: run}
	at := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	events.Add(spmd.Event{Time: at, Kind: spmd.Detected, Rank: 1, Process: 7, Step: 6, Reason: "killed " + hostile})
	events.Add(spmd.Event{Time: at, Kind: spmd.Resumed, Rank: -1, Step: 6, After: 4 * time.Millisecond})
	events.Add(spmd.Event{Time: at, Kind: spmd.Alarm, Rank: -1, Step: 7, Reason: "step 7 is skipped"})
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "config.toml"), []byte("flavor = 'debug'\nprecision = 'bf16'\n# <script>\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	projection := `{"Budget":{"Tokens":443.2,"Run":{"model":"671B","gpu":"B200","gpus":256,"tp":2}},"Range":{"P10":317,"P90":508.9},"Notes":[]}`
	if err := os.WriteFile(filepath.Join(run, "projection.json"), []byte(projection), 0o666); err != nil {
		t.Fatal(err)
	}
	return run
}

// check holds a page against what is true of any: XML that parses, no number that is none, no
// script, nothing fetched from elsewhere.
func check(t *testing.T, page []byte) {
	t.Helper()
	if at := regexp.MustCompile(`\bNaN\b|[+-]Inf\b|%!|ZgotmplZ|<script|\x00|\x1b`).FindIndex(page); at != nil {
		t.Errorf("...%q...", page[max(0, at[0]-80):min(len(page), at[1]+20)])
	}
	for d := xml.NewDecoder(bytes.NewReader(page)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range regexp.MustCompile(`(src=|href=|url\(|@import|\w+://)[^ <>]*`).FindAllString(string(page), -1) {
		if regexp.MustCompile(`^href="[\w.-]+/?"`).MatchString(address) { // a file of the run
			continue
		}
		if !strings.HasPrefix(address, "http://www.w3.org/") && !strings.HasPrefix(address, `href="data:image/svg`) {
			t.Errorf("the page names %s", address)
		}
	}
}

// answered returns the results of two tasks.
func answered(share record.Number) []record.Task {
	return []record.Task{
		{Task: "words", Form: "LAMBADA", Items: 4, Metrics: map[string]record.Number{"acc": share, "perplexity": 40}},
		{Task: "questions", Form: "ARC", Items: 4, Metrics: map[string]record.Number{"acc": 0.75, "acc_norm": share, "acc_bytes": 0.75}},
	}
}

// A task is drawn by acc_norm if it has that, by acc otherwise. A record whose last evaluation has
// no tasks has no figure of them.
func TestTasks(t *testing.T) {
	var r Run
	for step := range 3 {
		r.Log.Evals = append(r.Log.Evals, record.Eval{Step: step, Tasks: answered(record.Number(step) / 4)})
	}
	f, ok := r.tasks()
	if !ok || len(f.Legend) != 2 || f.Legend[0].Name != "words acc" || f.Legend[1].Name != "questions acc_norm" {
		t.Errorf("%v, %+v", ok, f.Legend)
	}
	if c, _ := r.accuracy("questions"); len(c.Mean) != 3 || c.Mean[2] != 0.5 {
		t.Errorf("%+v", c)
	}
	r.Log.Evals = append(r.Log.Evals, record.Eval{Step: 3})
	if _, ok := r.tasks(); ok {
		t.Error("a figure without tasks")
	}
}

func TestWrite(t *testing.T) {
	run := write(t, 100, 3, 16)
	if err := Write(run); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(run, File))
	if err != nil {
		t.Fatal(err)
	}
	check(t, page)
	for _, name := range names() {
		if slices.ContainsFunc(record.Quantities, func(q record.Quantity) bool { return q.Figure == name && q.Place == record.Optional }) {
			continue // the record lacks it
		}
		if !strings.Contains(string(page), `<figure id="`+name+`">`) {
			t.Errorf("the page lacks the figure %s", name)
		}
		picture, err := os.ReadFile(filepath.Join(run, figure.Plots, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || c.Width != 1600 || c.Height < 400 {
			t.Errorf("%s.png: %+v, %v", name, c, err)
		}
		if _, err := os.Stat(filepath.Join(run, figure.Plots, name+".svg")); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{
		`<span class="badge equivalent">done</span>`, "1 failed and replaced", "alarms: 1", "<b>debug</b><small>in bf16</small>", "<b>2.4095</b>", "204,800 tokens",
		"<b>10,240</b><small>43.5% of the machine’s measured peak (MFU)", "<b>1</b><small>their gradients were not fit", "4ms after the failure was detected",
		"step 7 is skipped", "killed &lt;/pre&gt;&lt;script&gt;", "<b>// New </b>&lt;/pre&gt;", "75%", `<a href="events.jsonl">events.jsonl</a>, <a href="plots/">plots/</a> in the folder`, "peak 400 GFLOP/s measured", "<dd>steps 49</dd>", "precision = &#39;bf16&#39;",
		"<b>443</b><small>tokens/s per GPU of 671B on 256 B200 with this run’s routing; 80 % interval 317 to 509",
	} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if len(page) > 1<<19 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// However large the model and long the run, the page stays small.
func TestSize(t *testing.T) {
	run := write(t, 400, 58, 256)
	r, err := Read(run)
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.Body(true)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, text := range []string{"Of 58 layers, 5 are shown.", "A row is the mean of 8 experts."} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

// Whatever is missing or broken in a run's folder, the rest is shown.
func TestIncomplete(t *testing.T) {
	line := func(text string) func(t *testing.T, run string) {
		return func(t *testing.T, run string) {
			if err := os.WriteFile(filepath.Join(run, record.File), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change     func(t *testing.T, run string)
		has, lacks []string
	}{
		"empty record":      {line(""), []string{"no step yet"}, []string{"<figure", "Where the time goes"}},
		"only a start":      {line(`{"start":{"step":0}}` + "\n"), []string{"no step yet"}, []string{"<figure"}},
		"one step":          {line(`{"step":{"step":1,"loss":3,"seconds":1}}` + "\n"), []string{"1 step made", `id="loss"`}, []string{`id="speed"`, `id="loads"`}},
		"old record":        {line(`{"start":{"step":0,"cpu":"x"}}` + "\n" + `{"step":{"step":1,"loss":3,"grad_norm":1,"seconds":1}}` + "\n"), []string{`id="grad-norm"`}, []string{"<small>tokens/s</small>"}},
		"nothing finite":    {line(`{"step":{"step":1,"loss":null,"grad_norm":null}}` + "\n" + `{"eval":{"step":1,"loss":null}}` + "\n"), []string{"1 step made"}, []string{`id="loss"`}},
		"no time":           {line(`{"start":{"step":0,"tokens":5,"peak":0}}` + "\n" + `{"step":{"step":1,"loss":3,"seconds":0}}` + "\n"), nil, []string{`id="speed"`}},
		"loads of nothing":  {line(`{"load":{"step":1,"layer":1,"tokens":[0,0]}}` + "\n" + `{"load":{"step":2,"layer":1,"tokens":[]}}` + "\n"), []string{`id="loads"`}, []string{`id="bias"`}},
		"huge numbers":      {line(`{"step":{"step":9007199254740992,"loss":-1e100,"grad_norm":1e100,"lr":-1e100,"seconds":1e-300}}` + "\n"), []string{`id="loss"`}, nil},
		"phases of nothing": {line(`{"phases":{"step":1,"families":{"x":-1}}}` + "\n" + `{"phases":{"step":2}}` + "\n"), nil, []string{`id="phases"`}},
		"no configuration":  {func(t *testing.T, run string) { os.Remove(filepath.Join(run, "config.toml")) }, []string{`id="loss"`}, []string{"<details>"}},
		"broken events": {func(t *testing.T, run string) {
			if err := os.WriteFile(filepath.Join(run, record.EventsFile), []byte("x\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, []string{"not shown", "events.jsonl:1"}, []string{"Alarms and failures"}},
		"broken projection": {func(t *testing.T, run string) {
			if err := os.WriteFile(filepath.Join(run, projectionFile), []byte("{"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, []string{"not shown", "projection.json: "}, []string{"<small>projected"}},
		"no projection": {func(t *testing.T, run string) { os.Remove(filepath.Join(run, projectionFile)) }, nil, []string{"projected", "not shown"}},
		"no events":     {func(t *testing.T, run string) { os.Remove(filepath.Join(run, record.EventsFile)) }, nil, []string{"Alarms and failures", "alarms:"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := write(t, 60, 1, 4)
			c.change(t, run)
			r, err := Read(run)
			if err != nil {
				t.Fatal(err)
			}
			page, err := r.Page("")
			if err != nil {
				t.Fatal(err)
			}
			check(t, page)
			for _, text := range c.has {
				if !strings.Contains(string(page), text) {
					t.Errorf("the page lacks %q", text)
				}
			}
			for _, text := range c.lacks {
				if strings.Contains(string(page), text) {
					t.Errorf("the page has %q", text)
				}
			}
		})
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(fmt.Sprint(err), "give the folder of a run") {
		t.Errorf("no record: error %v", err)
	}
}

// A page that follows its run has a script, and nothing else that its report has not.
func TestPage(t *testing.T) {
	r, err := Read(write(t, 40, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.Page("live.js")
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Body(true)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, []byte(`<script src="live.js" defer="defer"></script>`)) || !bytes.Contains(page, body) {
		t.Error("the page lacks its script or its body")
	}
}

// A column of a map lies before its step, and cells are as dark as their value is far from the
// mean.
func TestLevels(t *testing.T) {
	h := heat{steps: []float64{1, 20, 40}}
	if got := h.edges(); !slices.Equal(got, []float64{0, 1, 20, 40}) {
		t.Errorf("edges %v", got)
	}
	for v, want := range map[float64]int{0: 0, 0.01: 0, 1: heatLevels, -1: -heatLevels, 7: heatLevels, math.Inf(-1): -heatLevels, 0.5: heatLevels / 2} {
		if got := levelOf(v); got != want {
			t.Errorf("%v is of level %d, want %d", v, got, want)
		}
	}
	if levelOf(math.NaN()) != 0 || !math.IsNaN(mean(nil, 0, 3)) || mean([]float64{1, 3, 5}, 1, 9) != 4 {
		t.Error("what is not there counts")
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
		for name, content := range map[string][]byte{record.File: metrics, record.EventsFile: events} {
			if err := os.WriteFile(filepath.Join(run, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Read(run)
		if err != nil {
			return
		}
		page, err := r.Page("")
		if err != nil {
			t.Fatal(err)
		}
		check(t, page)
		body, err := r.Body(true)
		if err != nil {
			t.Fatal(err)
		}
		check(t, body)
	})
}
