package live

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
	"strings"
	"testing"
	"time"

	"spmoe/internal/testing/vt"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer"
	"spmoe/moe"
)

// drawPicture makes the test write the picture instead of comparing it:
//
//	go test ./launcher/report/live -run TestPicture -draw
//
// The log and the loads of experts come from
//
//	launcher -np 8 train --out RUN --steps 60 --log-every 1 --log-format json > testdata/log.jsonl
//	grep '^{"load"' RUN/metrics.jsonl > testdata/loads.jsonl
var drawPicture = flag.Bool("draw", false, "write docs/live-view.svg")

const picture = "../../../docs/live-view.svg"

// shownStep is the step in the picture.
const shownStep = 41

// logged is a line of a log in JSON.
type logged struct {
	Event string `json:"event"`

	Flavor     string  `json:"flavor"`
	Precision  string  `json:"precision"`
	Ranks      int     `json:"np"`
	Batch      int     `json:"batch"`
	Seq        int     `json:"seq"`
	Parameters int64   `json:"parameters"`
	Active     int64   `json:"active_parameters"`
	FLOPs      float64 `json:"flops_per_token"`
	Peak       float64 `json:"peak_flops"`
	CPU        string  `json:"cpu"`
	Tier       string  `json:"tier"`
	Cores      int     `json:"cores"`
	Train      int64   `json:"train_bytes"`
	HeldOut    int64   `json:"held_out_bytes"`
	Documents  int     `json:"documents"`
	Out        string  `json:"out"`

	Step        int           `json:"step"`
	Steps       int           `json:"steps"`
	Loss        record.Number `json:"loss"`
	GradNorm    record.Number `json:"grad_norm"`
	LR          float64       `json:"lr"`
	Speed       float64       `json:"tps"`
	TFLOPS      float64       `json:"tflops"`
	MFU         float64       `json:"mfu"`
	Memory      int64         `json:"memory_bytes"`
	MemoryShare float64       `json:"memory_share"`
	Imbalance   float64       `json:"imbalance"`
	Elapsed     float64       `json:"elapsed_s"`
	ETA         float64       `json:"eta_s"`

	HeldOutLoss float64 `json:"held_out_loss"`
	BitsPerByte float64 `json:"held_out_bits_per_byte"`
	Sequences   int     `json:"sequences"`
}

// lines reads the objects of a file in testdata.
func lines[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		var l T
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, l)
	}
	return all
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// replay shows the log of a run up to a step. A run logs every 20th step by default; the view also
// gets those between.
func replay(t *testing.T, s *stage, step int) {
	const logEvery = 20
	loads := map[int][]int64{} // of all layers, by step
	layers := map[int]bool{}
	for _, l := range lines[record.Line](t, "loads.jsonl") {
		loads[l.Load.Step] = append(loads[l.Load.Step], l.Load.Tokens...)
		layers[l.Load.Layer] = true
	}
	begin, newest := s.clock, []int64(nil)
	for _, l := range lines[logged](t, "log.jsonl") {
		if l.Step > step {
			return
		}
		switch l.Event {
		case "start":
			s.Start(trainer.Start{
				Config: trainer.Config{Flavor: l.Flavor, Precision: l.Precision, Steps: l.Steps, Batch: l.Batch, Seq: l.Seq, Out: l.Out},
				Ranks:  l.Ranks, Counts: moe.Counts{Total: l.Parameters, Active: l.Active}, FLOPs: l.FLOPs, Peak: l.Peak, CPU: l.CPU, Tier: l.Tier, Cores: l.Cores,
				Corpus: trainer.Corpus{Train: l.Train, HeldOut: l.HeldOut, Documents: l.Documents},
			})
		case "eval":
			s.later(time.Second).Eval(trainer.Eval{Step: l.Step, Loss: l.HeldOutLoss, BitsPerByte: l.BitsPerByte, Sequences: l.Sequences})
		case "step":
			if known := loads[l.Step-l.Step%logEvery]; known != nil {
				newest = known
			}
			e := trainer.Step{
				Step: l.Step, Steps: l.Steps, Loss: l.Loss, GradNorm: l.GradNorm, LR: l.LR, TokensPerSec: l.Speed, FLOPS: l.TFLOPS * 1e12, MFU: l.MFU,
				Memory: l.Memory, MemoryShare: l.MemoryShare, Imbalance: l.Imbalance, Elapsed: seconds(l.Elapsed), ETA: seconds(l.ETA), Loads: newest, Layers: len(layers),
			}
			s.clock = begin.Add(e.Elapsed)
			if l.Step == 1 || l.Step%logEvery == 0 {
				s.Step(e)
			} else {
				s.Between(e)
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
	svg := drawTerminal("$ launcher -np 8 train --steps 60", s.term.Cells(), s.term.Columns)
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
		t.Error("docs/live-view.svg is stale: run go test ./launcher/report/live -run TestPicture -draw")
	}
	if len(svg) > 60<<10 {
		t.Errorf("the picture has %d bytes", len(svg))
	}
	for _, want := range []string{fmt.Sprintf("%d/60", shownStep), "tokens/s", "validation", "experts", "grad_norm"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// The sizes of the picture in pixels.
const (
	cellWidth, cellHeight = 8, 18
	padding, titleHeight  = 14, 30
)

// inks are the colors of styles on a dark terminal.
var inks = map[string]string{"": "#d5dbe3", "1": "#ffffff", "2": "#8b949e", "32": "#3fb950", "1;31": "#ff7b72"}

// drawTerminal draws the cells of a terminal as SVG. Block characters are rectangles, because fonts
// leave gaps between them.
func drawTerminal(title string, rows [][]vt.Cell, columns int) []byte {
	var b bytes.Buffer
	if n := len(rows); n > 0 && len(rows[n-1]) == 0 {
		rows = rows[:n-1] // of the cursor
	}
	width, height := columns*cellWidth+2*padding, len(rows)*cellHeight+titleHeight+padding
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" shape-rendering="crispEdges">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>The live view of a run on a terminal</title><rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="20" fill="%s">%s</text>`+"\n", padding, inks["2"], html.EscapeString(title))
	for i, cells := range rows {
		y := titleHeight + i*cellHeight
		for from := 0; from < len(cells); {
			if drawBlock(&b, cells[from], padding+from*cellWidth, y) {
				from++
				continue
			}
			to := from
			for to < len(cells) && cells[to].Style == cells[from].Style && !isBlock(cells[to].Rune) {
				to++
			}
			drawText(&b, cells[from:to], padding+from*cellWidth, y)
			from = to
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func drawText(b *bytes.Buffer, cells []vt.Cell, x, y int) {
	var text strings.Builder
	for _, c := range cells {
		text.WriteRune(c.Rune)
	}
	trimmed := strings.TrimLeft(text.String(), " ")
	x += (len(cells) - len([]rune(trimmed))) * cellWidth
	if trimmed = strings.TrimRight(trimmed, " "); trimmed == "" {
		return
	}
	weight := ""
	if strings.HasPrefix(cells[0].Style, "1") {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" xml:space="preserve" fill="%s"%s>%s</text>`+"\n",
		x, y+13, len([]rune(trimmed))*cellWidth, inks[cells[0].Style], weight, html.EscapeString(trimmed))
}

func isBlock(r rune) bool { return r >= 0x2580 && r <= 0x259f }

// drawBlock draws a block character; false: it is none.
func drawBlock(b *bytes.Buffer, c vt.Cell, x, y int) bool {
	if !isBlock(c.Rune) {
		return false
	}
	w, h, opacity := float64(cellWidth), float64(cellHeight-2), ""
	switch {
	case c.Rune == '░':
		opacity = ` opacity="0.3"`
	case c.Rune <= '█': // ▁ to █: eighths of the height
		h *= float64(c.Rune-'▁'+1) / 8
	case c.Rune <= '▏': // ▉ to ▏: eighths of the width
		w *= float64('▏'-c.Rune+1) / 8
	}
	fmt.Fprintf(b, `<rect x="%d" y="%g" width="%g" height="%g" fill="%s"%s/>`+"\n", x, float64(y+cellHeight-1)-h, w, h, inks[c.Style], opacity)
	return true
}
