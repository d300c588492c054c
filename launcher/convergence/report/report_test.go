package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spmoe/internal/testing/svgtext"
	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// check holds a text against what is true of any: XML that parses, no number that is none, nothing
// fetched from elsewhere.
func check(t *testing.T, name string, text []byte) {
	t.Helper()
	if at := regexp.MustCompile(`\bNaN\b|[+-]Inf\b|%!|ZgotmplZ`).FindIndex(text); at != nil {
		t.Errorf("%s: ...%s...", name, text[max(0, at[0]-80):min(len(text), at[1]+20)])
	}
	if ext := filepath.Ext(name); ext != ".svg" && ext != ".html" {
		return
	}
	if err := wellFormed(text); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, address := range regexp.MustCompile(`(src=|href=|url\(|@import)["' ]*(\w+:|//)[^"]*`).FindAllString(string(text), -1) {
		if strings.HasPrefix(address, `href="data:image/svg`) { // the icon, which is in the page
			continue
		}
		t.Errorf("%s fetches %s", name, address)
	}
	for _, address := range regexp.MustCompile(`\w+://[^"]*`).FindAllString(string(text), -1) {
		if !strings.HasPrefix(address, "http://www.w3.org/") {
			t.Errorf("%s names %s", name, address)
		}
	}
}

// On a phone, the verdict is next to the name of its arm, and texts in figures can be read. All
// heads of tables say what they are heads of, and the contents lead to sections of the page.
func TestPhone(t *testing.T) {
	page := texts(t, sample(append(slices.Clone(sampleRecipes), sampleAblations...), 5, 200))
	const column = 420 - 2*14 // the page's margins
	small, measured := svgtext.Small(page, "narrow", column, 13)
	if measured < 100 || len(small) > 0 {
		t.Errorf("of %d texts, these are too small or too long:\n%s", measured, strings.Join(small, "\n"))
	}
	if small, measured := svgtext.Small(page, "wide", 980-2*24, 13); measured < 100 || len(small) > 0 {
		t.Errorf("of %d texts on a wide page: %q", measured, small)
	}
	if !regexp.MustCompile(`<th scope="col">arm</th><th scope="col" class="verdict">verdict</th>`).MatchString(page) ||
		!regexp.MustCompile(`</small></th>\n<td class="verdict"><span class="badge equivalent">`).MatchString(page) {
		t.Error("the verdict does not follow the arm")
	}
	if heads, scoped := strings.Count(page, "<th"), strings.Count(page, `<th scope="`)+strings.Count(page, "<thead>"); heads != scoped || heads < 10 {
		t.Errorf("%d of %d heads of tables have a scope", scoped, heads)
	}
	links := regexp.MustCompile(`<a href="#([\w-]+)">`).FindAllStringSubmatch(page, -1)
	for _, link := range links {
		if strings.Count(page, ` id="`+link[1]+`"`) != 1 {
			t.Errorf("the page has no section %s, or several", link[1])
		}
	}
	if len(links) < 6 {
		t.Errorf("the contents have %d entries", len(links))
	}
}

// texts checks all that is written about a result, but for the pictures, and returns the page.
func texts(t *testing.T, r convergence.Result) (page string) {
	t.Helper()
	r = cleaned(r)
	p := painter{r, stylesOf(r.Arms)}
	files, err := p.texts(p.figures())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.figures() {
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		check(t, f.Name+".svg", svg)
	}
	for _, f := range files {
		check(t, f.name, f.content)
		page = string(f.content)
	}
	return page
}

// wellFormed parses text as XML, which the page is, too.
func wellFormed(text []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWrite(t *testing.T) {
	r := sample(append(slices.Clone(sampleRecipes), sampleAblations...), 5, 1500)
	dir := t.TempDir()
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	check(t, "report.html", content)
	for _, name := range figureNames() {
		picture, err := os.ReadFile(filepath.Join(dir, figure.Plots, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || c.Width != 1600 || c.Height < 500 {
			t.Errorf("%s.png: %+v, %v", name, c, err)
		}
	}

	want := []string{"result.json", "steps.csv", "summary.csv", "quantisation.csv", "router.csv", "course.csv", "report.html"}
	for _, name := range figureNames() {
		want = append(want, filepath.Join(figure.Plots, name+".svg"), filepath.Join(figure.Plots, name+".png"))
		if !strings.Contains(page, `<figure id="`+name+`">`) {
			t.Errorf("the page lacks the figure %s", name)
		}
	}
	slices.Sort(want)
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files\n%q, want\n%q", got, want)
	}
	if len(page) > 5<<18 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, arm := range r.Arms {
		svg, err := os.ReadFile(filepath.Join(dir, figure.Plots, "loss.svg"))
		if err != nil || !strings.Contains(string(svg), ">"+arm.Name+"</text>") {
			t.Errorf("the legend of the losses lacks %s (%v)", arm.Name, err)
		}
	}
	for _, text := range []string{
		"<h1>mxfp8 and mxfp8-wgrad-bf16 against bf16</h1>\n<p class=\"badges\"><span class=\"badge equivalent\">equivalent</span></p>",
		"After 1500 steps with 5 seeds, mxfp8 converges to the loss of bf16: it differs by ", "Ablations", "Where the time goes", "mx grouped dgrad",
		"prefers-color-scheme: dark", "AMD EPYC 9R14", "5 seeds of bf16 have a standard deviation of", "3,072,000 tokens per run",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}

	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back convergence.Result
	if err := json.Unmarshal(text, &back); err != nil {
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
}

// The page is the same whenever it is written.
func TestDeterministic(t *testing.T) {
	r := sample(append(slices.Clone(sampleRecipes), sampleAblations...), 2, 60)
	first := texts(t, r)
	if second := texts(t, r); first != second {
		t.Error("two pages of one result differ")
	}
}

// Whatever is missing or broken in a result, the rest is written.
func TestIncomplete(t *testing.T) {
	nan, inf := record.Number(math.NaN()), record.Number(math.Inf(1))
	everyRun := func(r *convergence.Result, f func(arm int, run *convergence.Run)) {
		for i := range r.Arms {
			for j := range r.Arms[i].Runs {
				f(i, &r.Arms[i].Runs[j])
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(r *convergence.Result)
		has    []string // in the page
		lacks  []string
	}{
		{"empty", func(r *convergence.Result) { *r = convergence.Result{} }, []string{"Comparison without arms"}, []string{"<figure", "<table"}},
		{"only the baseline", func(r *convergence.Result) { r.Arms = r.Arms[:1] }, []string{"bf16, compared with no other arm", `id="loss"`}, []string{`id="difference"`, `id="forest"`, "Ablations"}},
		{"no ablations", func(r *convergence.Result) { r.Arms = r.Arms[:3] }, []string{`id="forest"`}, []string{"Ablations"}},
		{"only ablations", func(r *convergence.Result) { r.Arms = append(r.Arms[:1:1], r.Arms[3:]...) }, []string{"Ablations", `id="sqnr-by-linear"`}, []string{"badge equivalent"}},
		{"no logs", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) { run.Log = nil })
		}, []string{`id="forest"`, `id="router-agreement"`}, []string{`id="loss"`, `id="sqnr"`}},
		{"empty logs", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) { run.Log = new(record.Log) })
		}, []string{`id="forest"`}, []string{`id="loss"`, `id="held-out"`, `id="grad-norm"`, `id="imbalance"`, `id="sqnr"`, "Quantization</h2>"}},
		{"a baseline without logs", func(r *convergence.Result) {
			everyRun(r, func(arm int, run *convergence.Run) {
				if arm == 0 {
					run.Log = nil
				}
			})
		}, []string{`id="loss"`}, []string{`id="difference"`}},
		{"one seed", func(r *convergence.Result) { *r = sample(sampleRecipes, 1, 40) },
			[]string{"equivalence within ±0.5% is undecided", "One seed says nothing about others", `id="forest"`, "badge undecided"}, []string{"95% CI +", "seeds of bf16 scatter", "TOST, p"}},
		{"nothing quantized", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) { run.Log.Quantized = nil })
		}, []string{`id="loss"`}, []string{`id="sqnr"`, `id="sqnr-by-linear"`, `id="lost-values"`}},
		{"quantized without loss", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) {
				for i := range run.Log.Quantized {
					q := &run.Log.Quantized[i]
					q.Noise, q.Flushed, q.Saturated = 0, 0, 0
				}
			})
		}, []string{"exact / exact / exact", `id="lost-values"`}, []string{`id="sqnr"`}},
		{"quantized nothing", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) {
				for i := range run.Log.Quantized {
					run.Log.Quantized[i] = record.Quantized{Step: 1, Tensor: record.Weight, Signal: nan, Noise: inf}
				}
			})
		}, []string{`id="loss"`}, []string{`id="sqnr"`, `id="lost-values"`}},
		{"no experts", func(r *convergence.Result) {
			for i := range r.Arms {
				r.Arms[i].Agreement = nil
			}
			everyRun(r, func(_ int, run *convergence.Run) {
				run.Log.Loads, run.Log.Choices = nil, nil
				for i := range run.Log.Steps {
					run.Log.Steps[i].Imbalance = 0
				}
			})
		}, []string{`id="loss"`}, []string{`id="imbalance"`, `id="router-agreement"`, "Experts and routing"}},
		{"a diverged run", func(r *convergence.Result) {
			diverge(&r.Arms[1], nan)
		}, []string{"mxfp8 does not converge to the loss of bf16: 1 of its 2 runs diverged", "1 diverged", `id="forest"`, "<h1>mxfp8 and mxfp8-wgrad-bf16 against bf16</h1>\n<p class=\"badges\"><span class=\"badge different\">"}, nil},
		{"infinite losses", func(r *convergence.Result) { diverge(&r.Arms[1], inf) }, []string{`id="loss"`}, nil},
		{"huge losses", func(r *convergence.Result) { diverge(&r.Arms[1], 1e300) }, []string{`id="loss"`}, nil},
		{"a diverged baseline", func(r *convergence.Result) {
			diverge(&r.Arms[0], nan)
		}, []string{"nothing can be said about mxfp8: 1 of the baseline&#39;s 2 runs diverged"}, nil},
		{"all losses NaN", func(r *convergence.Result) {
			everyRun(r, func(_ int, run *convergence.Run) {
				run.Train, run.HeldOut = nan, nan
				for i := range run.Log.Steps {
					run.Log.Steps[i].Loss, run.Log.Steps[i].GradNorm = nan, nan
				}
				for i := range run.Log.Evals {
					run.Log.Evals[i].Loss = inf
				}
			})
			for i := range r.Arms {
				r.Arms[i].Train, r.Arms[i].HeldOut = nil, nil
			}
		}, []string{`id="sqnr"`}, []string{`id="loss"`, `id="difference"`, `id="held-out"`, `id="grad-norm"`, `id="forest"`}},
		{"differences that are not finite", func(r *convergence.Result) {
			r.Arms[1].Train = &convergence.Difference{Pairs: []float64{0, math.NaN()}, Mean: math.NaN(), Seeds: 2}
			r.Arms[1].HeldOut = &convergence.Difference{Pairs: []float64{0, math.Inf(1)}, Mean: math.Inf(1), Seeds: 2, CI95: [2]float64{math.Inf(-1), math.Inf(1)}}
			r.Arms[1].Speed, r.Spread.Train.SD = math.NaN(), math.NaN()
			r.Arms[1].Agreement[0].Share = math.NaN()
			r.Arms[1].Times = &record.Times{Seconds: math.NaN()}
		}, []string{"mxfp8 has no finite difference to bf16"}, nil},
		{"zeros", func(r *convergence.Result) {
			r.Margin = 0
			everyRun(r, func(_ int, run *convergence.Run) {
				run.Train, run.HeldOut = 0, 0
				for i := range run.Log.Steps {
					run.Log.Steps[i].Loss, run.Log.Steps[i].GradNorm = 0, 0
				}
			})
			for i := range r.Arms {
				r.Arms[i].Speed, r.Arms[i].Times = 0, &record.Times{}
			}
		}, []string{`id="loss"`}, []string{`id="grad-norm"`, "Where the time goes"}},
		{"one step", func(r *convergence.Result) { *r = sample(sampleRecipes, 2, 1) }, []string{`id="loss"`}, nil},
		{"setup unknown", func(r *convergence.Result) { r.Setup = convergence.Setup{} }, []string{`id="difference"`}, nil},
		{"many jobs", func(r *convergence.Result) { r.Setup.Jobs = 4 }, []string{"4 runs shared the machine"}, nil},
		{"hostile names", func(r *convergence.Result) {
			bad := "</text></svg><script>alert(1)</script>&\x00\x1b\"'"
			r.Arms[1].Name, r.Arms[1].About, r.Command, r.Version, r.Setup.Config = bad, bad, bad, bad, bad
			r.Arms[1].Times.Families[bad] = 1
			everyRun(r, func(_ int, run *convergence.Run) {
				for i := range run.Log.Quantized {
					run.Log.Quantized[i].Linear = bad
				}
			})
		}, []string{"&lt;script&gt;"}, []string{"<script"}},
		{"more arms than colours", func(r *convergence.Result) {
			for i := range 5 {
				arm := r.Arms[1]
				arm.Name = strings.Repeat("x", i+1)
				r.Arms = append(r.Arms, arm)
			}
		}, []string{"xxxxx"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := sample(append(slices.Clone(sampleRecipes), sampleAblations[3]), 2, 40)
			test.change(&r)
			page := texts(t, r)
			for _, text := range test.has {
				if !strings.Contains(page, text) {
					t.Errorf("the page lacks %q", text)
				}
			}
			for _, text := range test.lacks {
				if strings.Contains(page, text) {
					t.Errorf("the page has %q", text)
				}
			}
		})
	}
}

// diverge lets an arm's second run end in a loss, as package convergence would tell of it.
func diverge(arm *convergence.Arm, loss record.Number) {
	run := &arm.Runs[1]
	for i := len(run.Log.Steps) / 2; i < len(run.Log.Steps); i++ {
		run.Log.Steps[i].Loss, run.Log.Steps[i].GradNorm = loss, loss
	}
	for i := len(run.Log.Evals) / 2; i < len(run.Log.Evals); i++ {
		run.Log.Evals[i].Loss = loss
	}
	run.Train, run.HeldOut, run.Diverged = loss, loss, true
	if arm.Verdict != convergence.Baseline {
		arm.Train, arm.HeldOut, arm.Verdict = nil, nil, convergence.Different
	}
}

func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	r := sample(sampleRecipes, 2, 40)
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, figure.Plots, "mine.svg")
	if err := os.WriteFile(own, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	r.Arms = r.Arms[:1]
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"loss.svg": true, "loss.png": true, "forest.svg": false, "forest.png": false, "mine.svg": true} {
		if _, err := os.Stat(filepath.Join(dir, figure.Plots, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "steps.csv"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, sample(sampleRecipes, 2, 10)); err == nil || !strings.Contains(err.Error(), "steps.csv") {
		t.Errorf("%v, want an error about steps.csv, which is a folder", err)
	}
	for _, name := range files(t, dir) {
		if strings.HasPrefix(filepath.Base(name), ".") || name == "report.html" {
			t.Errorf("it left %q", name)
		}
	}
}
