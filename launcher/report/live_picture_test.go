package report

// docs/live-view.svg: the view as it was in the middle of a run. The view is drawn here again, from
// what the run logged.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/internal/testing/vt"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
)

// drawPicture makes the test write the picture instead of comparing it:
//
//	go test ./launcher/report -run TestPicture -draw
//
// The log comes from
//
//	launcher -np 8 train --steps 60 --log-every 1 --log-format json > testdata/live.jsonl
var drawPicture = flag.Bool("draw", false, "write docs/live-view.svg")

const picture = "../../docs/live-view.svg"

// shownStep is the step in the picture.
const shownStep = 41

// replay shows the log of a run up to a step. A run logs every 20th step by default; the view also
// gets those between.
func replay(t *testing.T, s *stage, step int) {
	text, err := os.ReadFile("testdata/live.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	begin := s.clock
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		var values map[string]any
		var run events.Start
		var made events.Step
		for _, to := range []any{&values, &run, &run.Config, &made} { // each takes the keys that it has
			if err := json.Unmarshal(in.Bytes(), to); err != nil {
				t.Fatal(err)
			}
		}
		number := func(key string) float64 { x, _ := values[key].(float64); return x }
		seconds := func(key string) time.Duration { return time.Duration(number(key) * float64(time.Second)) }
		if made.Step > step {
			return
		}
		switch values["event"] {
		case "start":
			run.Ranks, run.FLOPs, run.Peak = int(number("np")), number("flops_per_token"), number("peak_flops")
			run.Counts = moe.Counts{Total: int64(number("parameters")), Active: int64(number("active_parameters"))}
			run.Corpus.Train, run.Corpus.HeldOut = int64(number("train_bytes")), int64(number("held_out_bytes"))
			run.Corpus.Documents = int(number("documents"))
			s.Start(run)
		case "eval":
			s.later(time.Second).Eval(events.Eval{
				Step: made.Step, Loss: number("held_out_loss"), BitsPerByte: number("held_out_bits_per_byte"), Sequences: int(number("sequences")),
			})
		case "step":
			made.Steps, made.TokensPerSec, made.FLOPS, made.MFU = int(number("steps")), number("tps"), number("tflops")*1e12, number("mfu")
			made.Memory, made.MemoryShare = int64(number("memory_bytes")), number("memory_share")
			made.Elapsed, made.ETA = seconds("elapsed_s"), seconds("eta_s")
			s.clock = begin.Add(made.Elapsed)
			if made.Step == 1 || made.Step%20 == 0 {
				s.Step(made)
			} else {
				s.Between(made)
			}
		}
	}
}

// The committed picture is what the view shows of its run.
func TestPicture(t *testing.T) {
	s := newStage(100, 24, true)
	replay(t, s, shownStep)
	if s.term.Err != nil {
		t.Fatal(s.term.Err)
	}
	svg := drawTerminal("$ launcher -np 8 train --steps 60", s.term.Cells())
	if *drawPicture {
		if err := os.WriteFile(picture, svg, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, svg) {
		t.Error("docs/live-view.svg is stale: run go test ./launcher/report -run TestPicture -draw")
	}
	for _, want := range []string{fmt.Sprintf("%d/60", shownStep), "tokens/s", "validation", "imbalance", "grad_norm"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// inks are the colors of styles on a dark terminal.
var inks = map[string]string{"": "#d5dbe3", "1": "#ffffff", "2": "#8b949e", "32": "#3fb950", "1;31": "#ff7b72"}

// drawTerminal draws the cells of a terminal as SVG: a text for each stretch of one style.
func drawTerminal(title string, rows [][]vt.Cell) []byte {
	const cell, line, padding, top = 8, 18, 14, 43
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-size="13" `,
		100*cell+2*padding, top+len(rows)*line-padding)
	b.WriteString(`font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace">` + "\n")
	b.WriteString(`<title>The live view of a run on a terminal</title><rect width="100%" height="100%" rx="8" fill="#0d1117"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="20" fill="%s">%s</text>`+"\n", padding, inks["2"], html.EscapeString(title))
	for i, cells := range rows {
		for from := 0; from < len(cells); {
			style := cells[from].Style
			n := slices.IndexFunc(cells[from:], func(c vt.Cell) bool { return c.Style != style })
			if n < 0 {
				n = len(cells) - from
			}
			text := make([]rune, n)
			for j := range text {
				text[j] = cells[from+j].Rune
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d" xml:space="preserve" fill="%s">%s</text>`+"\n",
				padding+from*cell, top+i*line, n*cell, inks[style], html.EscapeString(string(text)))
			from += n
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
