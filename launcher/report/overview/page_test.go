package overview

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/internal/testing/svgtext"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/spmd"
)

// Texts of figures can be read on a phone, and fit.
func TestPhone(t *testing.T) {
	run := write(t, 100, 3, 16)
	if err := Write(run); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(run, File))
	if err != nil {
		t.Fatal(err)
	}
	for class, column := range map[string]float64{"narrow": 420 - 2*14, "wide": 980 - 2*24} {
		if small, measured := svgtext.Small(string(page), class, column, 13); measured < 50 || len(small) > 0 {
			t.Errorf("of %d texts on a %s page, these are too small or too long:\n%s", measured, class, strings.Join(small, "\n"))
		}
	}
}

// Few evaluations are points: a line between them would show what was not measured. A single
// step has one line, and no thin one.
func TestFewPoints(t *testing.T) {
	const line = `<path d="M[^"]*L[^"]*" style="fill:none;stroke:#%06X;stroke-width:1.6"`
	for evals, want := range map[int]int{2: 0, 12: 2} { // one of them in the legend
		run := t.TempDir()
		w, err := record.Open(run, 0)
		if err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= 40; step++ {
			w.Step(record.Step{Step: step, Loss: record.Number(5 - 0.1*float64(step)), Seconds: 1})
			if step%(40/evals) == 0 {
				w.Eval(record.Eval{Step: step, Loss: 3, Sequences: 1})
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Read(run)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := r.loss()
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if lines := regexp.MustCompile(fmt.Sprintf(line, figure.Palette[2].Light)).FindAll(svg, -1); len(lines) != want {
			t.Errorf("%d evaluations: %d lines, want %d", evals, len(lines), want)
		}
		if thin := bytes.Contains(svg, []byte("stroke-width:0.7")) && bytes.Contains(svg, []byte(`stroke-opacity`)); thin || strings.Contains(f.Caption, "thin") {
			t.Errorf("a thin line (%t), and the caption is %q", thin, f.Caption)
		}
	}
	r, err := Read(write(t, 100, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := r.loss(); !strings.Contains(f.Caption, "smoothed over 2 steps; the thin line is the loss of single steps") {
		t.Errorf("of a long run the caption is %q", f.Caption)
	}
}

// The page of a run under way says how far it is, when it will end, and what happened last. The
// report of a run does not.
func TestStatus(t *testing.T) {
	run := write(t, 40, 1, 4)
	text, err := os.ReadFile(filepath.Join(run, record.File))
	if err != nil {
		t.Fatal(err)
	}
	under := regexp.MustCompile(`(?m)^\{"(done|sample|times)".*\n`).ReplaceAll(text, nil)
	if err := os.WriteFile(filepath.Join(run, record.File), under, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "config.toml"), []byte("flavor = 'debug'\nsteps = 100\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := Read(run)
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Body(true)
	if err != nil {
		t.Fatal(err)
	}
	check(t, body)
	page, err := r.Page("")
	if err != nil {
		t.Fatal(err)
	}
	for text, always := range map[string]bool{
		`<span class="badge undecided">step 40 of 100</span>`: true, "<b>40 of 100</b>": true,
		`<span style="width:40.0%">`: false, "40.0%, about 12s left after step 40": false, // 60 steps of 0.2 s
		"step 40     loss 2.6325  grad norm 0.4  lr 0.001  10,240 tokens/s\n": false, "step 40     validation loss 3.0000\n": false,
	} {
		if !bytes.Contains(body, []byte(text)) {
			t.Errorf("the page lacks %q", text)
		}
		if bytes.Contains(page, []byte(text)) != always {
			t.Errorf("in the report, %q is there: %t", text, !always)
		}
	}
	r.Events = append(r.Events, spmd.Event{Kind: spmd.Alarm, Rank: -1, Step: 40, Reason: "a disk is full"})
	r.Checkpoints = append(r.Checkpoints, checkpoint.Entry{Name: "step-00000040", Step: 40, Ranks: 2})
	lines := view{Run: r, Script: "live"}.LastLines()
	for _, want := range []string{"step 40     saved step-00000040\n", "step 40     alarm: a disk is full\n"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the log lacks %q:\n%s", want, lines)
		}
	}
	if n := strings.Count(lines, "\n"); n != mostLines+8 { // 3 evaluations, 3+1 events, 1 checkpoint
		t.Errorf("the log has %d lines:\n%s", n, lines)
	}
}

// No fact is left over in a row of its own.
func TestColumns(t *testing.T) {
	r, err := Read(write(t, 40, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	v := view{Run: r}
	for range 3 {
		if n, columns := len(v.Facts()), v.Columns(); n%columns == 1 {
			t.Errorf("%d facts in %d columns", n, columns)
		}
		v.Projection, v.Log.Evals = nil, nil
		if len(v.Facts()) < 7 {
			v.Log.Starts = nil
		}
	}
}

// The values of a step are shown under the pointer, and two figures of a section have headings that
// differ from it.
func TestHover(t *testing.T) {
	r, err := Read(write(t, 100, 2, 8))
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.Page("")
	if err != nil {
		t.Fatal(err)
	}
	box := regexp.MustCompile(`<tspan [xy][^>]*>(?:<tspan[^>]*>(● )</tspan>)?([^<]*)</tspan>`)
	shown := ""
	for _, line := range box.FindAllStringSubmatch(string(page), -1) {
		shown += line[1] + line[2] + "|"
	}
	for _, want := range []string{
		"step 100|● training text 2.401|● validation text 3|", "|● learning rate 0.001|", "|● tokens/s 10240|", "|● matrix products (ms) 100|",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	for _, want := range []string{"<h2>Loss</h2>\n<figure", "<h3>Throughput</h3>"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(shown, "step "); n < 100 || n > 600 {
		t.Errorf("%d strips are shown", n)
	}
}
