package convergence

import (
	"bytes"
	"encoding/json"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spmoe/internal/testing/browser"
	"spmoe/launcher/record"
	"spmoe/launcher/report/page"
)

// pageData returns the page of a result and its data.
func pageData(t *testing.T, r Result) (html []byte, data string) {
	t.Helper()
	html, err := cleaned(r).page().HTML()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(html), `id="data">`)
	data, _, _ = strings.Cut(rest, "</script>")
	var back page.Page
	if err := json.Unmarshal([]byte(data), &back); err != nil {
		t.Fatal(err)
	}
	if at := regexp.MustCompile(`\bNaN\b|[+-]Inf\b|%!`).FindString(data); at != "" {
		t.Errorf("the data has %q", at)
	}
	return html, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(data)
}

func TestWrite(t *testing.T) {
	r := sample(sampleRecipes, 5, 1500)
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "forest.png"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || c.Width != 1600 || c.Height < 250 {
		t.Errorf("forest.png: %+v, %v", c, err)
	}
	html, data := pageData(t, r)
	if written, err := os.ReadFile(filepath.Join(dir, page.File)); err != nil || !bytes.Equal(written, html) {
		t.Errorf("two pages of one result differ (%v)", err)
	}
	if len(html) > 3<<18 {
		t.Errorf("the page has %d bytes", len(html))
	}
	for _, text := range []string{
		`{"title":"mxfp8, mxfp8-wgrad-bf16 against bf16","badges":[{"text":"equivalent","class":"good"}]`,
		"mxfp8 against bf16, margin 0.5 %, 5 seeds: EQUIVALENT", "mx grouped dgrad", "AMD EPYC 9R14", "5 seeds of bf16 have a standard deviation of",
		"3,072,000 tokens per run", `"link":"plan.toml"`,
	} {
		if !strings.Contains(data, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	back, err := ReadResult(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Arms {
		for j := range r.Arms[i].Runs {
			r.Arms[i].Runs[j].Log = nil
		}
	}
	if !reflect.DeepEqual(back, r) {
		t.Error("result.json holds something else than the result")
	}
	if err := os.MkdirAll(filepath.Join(dir, "x", resultFile), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(filepath.Join(dir, "x")); err == nil || !strings.Contains(err.Error(), resultFile) {
		t.Errorf("%s is a folder: error %v", resultFile, err)
	}
}

// A browser draws all charts of a comparison, on a desk and on a phone.
func TestBrowser(t *testing.T) {
	html, _ := pageData(t, sample(sampleRecipes, 5, 1500))
	want := []string{
		"forest-training", "forest-validation", "loss", "difference", "held-out", "held-out-difference", "grad-norm", "imbalance", "router-agreement",
		"sqnr-input", "sqnr-weight", "sqnr-gradient", "flushed-input", "flushed-weight", "flushed-gradient",
	}
	for _, width := range []int{1280, 390} {
		if got := browser.Check(t, html, width); !slices.Equal(got, want) {
			t.Errorf("charts %q", got)
		}
	}
	browser.Controls(t, html, "loss")
}

// Whatever is missing or broken in a result, the rest is written.
func TestIncompleteResult(t *testing.T) {
	nan, inf := record.Number(math.NaN()), record.Number(math.Inf(1))
	logs := func(f func(log *record.Log)) func(r *Result) {
		return func(r *Result) {
			for i := range r.Arms {
				for j := range r.Arms[i].Runs {
					f(r.Arms[i].Runs[j].Log)
				}
			}
		}
	}
	chart := func(name string) string { return `"id":"` + name + `"` }
	for name, test := range map[string]struct {
		change     func(r *Result)
		has, lacks []string
	}{
		"only the baseline": {func(r *Result) { r.Arms = r.Arms[:1] },
			[]string{"bf16, compared with no other arm", chart("loss")}, []string{chart("difference"), "forest"}},
		"no logs": {func(r *Result) {
			for i := range r.Arms {
				for j := range r.Arms[i].Runs {
					r.Arms[i].Runs[j].Log = nil
				}
			}
		}, []string{chart("forest-training"), chart("router-agreement")}, []string{chart("loss"), chart("sqnr-input")}},
		"empty logs": {logs(func(log *record.Log) { *log = record.Log{} }),
			[]string{chart("forest-training")}, []string{chart("loss"), chart("held-out"), chart("grad-norm"), chart("imbalance"), chart("sqnr-input")}},
		"one seed": {func(r *Result) { *r = sample(sampleRecipes, 1, 40) },
			[]string{"One seed says nothing about others", chart("forest-training"), `{"text":"undecided","class":"warn"}`}, []string{"have a standard deviation"}},
		"nothing quantized": {logs(func(log *record.Log) { log.Quantized = nil }), []string{chart("loss")}, []string{chart("sqnr-input"), "weakest link"}},
		"quantized without loss": {logs(func(log *record.Log) {
			for i := range log.Quantized {
				q := &log.Quantized[i]
				q.Noise, q.Flushed, q.Saturated = 0, 0, 0
			}
		}), []string{"exact / exact / exact", chart("flushed-input")}, []string{chart("sqnr-input"), chart("saturated-input")}},
		"quantized nothing": {logs(func(log *record.Log) {
			for i := range log.Quantized {
				log.Quantized[i] = record.Quantized{Step: 1, Tensor: record.Weight, Signal: nan, Noise: inf}
			}
		}), []string{chart("loss")}, []string{chart("sqnr-weight"), chart("flushed-weight")}},
		"a diverged run":      {func(r *Result) { diverge(&r.Arms[1], nan) }, []string{"1 diverged", `{"text":"different","class":"bad"}`, "mxfp8 has diverged with seed 2"}, nil},
		"infinite losses":     {func(r *Result) { diverge(&r.Arms[1], inf) }, []string{chart("loss")}, nil},
		"huge losses":         {func(r *Result) { diverge(&r.Arms[1], 1e300) }, []string{chart("loss")}, nil},
		"a diverged baseline": {func(r *Result) { diverge(&r.Arms[0], nan) }, []string{"bf16 has diverged with seed 2"}, nil},
		"all losses NaN": {func(r *Result) {
			logs(func(log *record.Log) {
				for i := range log.Steps {
					log.Steps[i].Loss, log.Steps[i].GradNorm = nan, nan
				}
				for i := range log.Evals {
					log.Evals[i].Loss = inf
				}
			})(r)
			for i := range r.Arms {
				r.Arms[i].Train, r.Arms[i].HeldOut = nil, nil
			}
		}, []string{chart("sqnr-input"), "it has no finite difference"}, []string{chart("loss"), chart("difference"), chart("held-out"), chart("grad-norm"), "forest"}},
		"differences that are not finite": {func(r *Result) {
			r.Arms[1].Train = &Difference{Pairs: []float64{0, math.NaN()}, Mean: math.NaN(), Seeds: 2}
			r.Arms[1].HeldOut = &Difference{Mean: math.Inf(1), Seeds: 2, CI95: [2]float64{math.Inf(-1), math.Inf(1)}}
			r.Arms[1].Speed, r.Spread.Train.SD = math.NaN(), math.NaN()
			r.Arms[1].Agreement[0].Share = math.NaN()
			r.Arms[1].Times = &record.Times{Seconds: math.NaN()}
		}, []string{"no finite difference"}, nil},
		"zeros": {func(r *Result) {
			r.Margin = 0
			for i := range r.Arms {
				r.Arms[i].Speed, r.Arms[i].Times = 0, &record.Times{}
			}
		}, []string{chart("loss")}, []string{"Where the time goes"}},
		"one step":      {func(r *Result) { *r = sample(sampleRecipes, 2, 1) }, []string{chart("loss")}, nil},
		"setup unknown": {func(r *Result) { r.Setup = Setup{} }, []string{chart("difference")}, nil},
		"many jobs":     {func(r *Result) { r.Setup.Jobs = 4 }, []string{"4 runs shared the machine"}, nil},
		"more arms than colors": {func(r *Result) {
			for i := range 8 {
				arm := r.Arms[1]
				arm.Name = strings.Repeat("x", i+1)
				r.Arms = append(r.Arms, arm)
			}
		}, []string{"xxxxxxxx", `"dash":1`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := sample(sampleRecipes, 2, 40)
			test.change(&r)
			_, data := pageData(t, r)
			for _, text := range test.has {
				if !strings.Contains(data, text) {
					t.Errorf("the page lacks %q", text)
				}
			}
			for _, text := range test.lacks {
				if strings.Contains(data, text) {
					t.Errorf("the page has %q", text)
				}
			}
			if err := cleaned(r).writeForest(filepath.Join(t.TempDir(), "forest.png")); err != nil {
				t.Error(err)
			}
		})
	}
}

// diverge lets an arm's second run end in a loss, as a comparison judges it.
func diverge(arm *Arm, loss record.Number) {
	run := &arm.Runs[1]
	for i := len(run.Log.Steps) / 2; i < len(run.Log.Steps); i++ {
		run.Log.Steps[i].Loss, run.Log.Steps[i].GradNorm = loss, loss
	}
	for i := len(run.Log.Evals) / 2; i < len(run.Log.Evals); i++ {
		run.Log.Evals[i].Loss = loss
	}
	run.Train, run.HeldOut, run.Diverged = loss, loss, true
	if arm.Verdict != Baseline {
		arm.Train, arm.HeldOut, arm.Verdict = nil, nil, Different
	}
}

// The right end of the curve of differences is what the test judges, and the marks of the forest
// chart are the differences.
func TestDifferences(t *testing.T) {
	r := sample(sampleRecipes, 3, 200)
	c := charts{r}
	var curves []page.Curve
	for _, chart := range c.overTraining() {
		if chart.ID == "difference" {
			curves = chart.Curves
		}
	}
	if len(curves) != 2 {
		t.Fatalf("%d curves", len(curves))
	}
	forest := c.forests()[0]
	for i, curve := range curves {
		want, end := r.Arms[i+1].Train, len(curve.Y)-1
		if math.Abs(curve.Y[end]-100*want.Mean) > 1e-9 || math.Abs(curve.Low[end]-100*slices.Min(want.Pairs)) > 1e-9 {
			t.Errorf("%s ends at %v%% (lowest %v%%), want %+v", curve.Name, curve.Y[end], curve.Low[end], want)
		}
		marks := forest.Rows[i].Marks
		if n := len(marks); n != 5 || marks[4].From != 100*want.Mean || marks[3].From != 100*want.CI95[0] || marks[3].To != 100*want.CI95[1] {
			t.Errorf("%s: marks %+v", curve.Name, marks)
		}
	}
	if z := *forest.Zone; z != (page.Range{-0.5, 0.5}) {
		t.Errorf("the margin is shown at %v", z)
	}
	r.Arms[1].Train.Mean, r.Arms[1].Train.CI95 = 9, [2]float64{8, 10} // a diverged run does not set the scale
	if x := *(charts{r}).forests()[0].X.Range; x[1] > 3.1 {
		t.Errorf("the axis reaches to %v", x)
	}
}
