package measuring

// The page of a projection.

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"spmoe/bench/projection"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
)

// projectionFile is the name of the file with all numbers of a projection.
const projectionFile = "projection.json"

// Projection is the result of a projection.
type Projection struct {
	Headlines []projection.Headline
	Ranges    [][3]projection.Range // of the headline throughputs
	Budget    projection.Budget     // of the requested run
	Range     projection.Range      // of its throughput
	Swings    []projection.Swing    // of the DeepEP scenario
	Effects   projection.Effects    // errors on published rows
	Excluded  []projection.Excluded
	Version   string // of the parameters
	Hash      string
	Notes     []string
}

// Write writes the page and all numbers to a folder, which it creates if necessary.
func (p Projection) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if err := p.WriteNumbers(folder); err != nil {
		return err
	}
	return p.page().Write(filepath.Join(folder, "projection.html"))
}

// WriteNumbers writes all numbers of a projection as JSON to a folder.
func (p Projection) WriteNumbers(folder string) error {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(folder, projectionFile), append(text, '\n'))
}

func whole(v float64) string      { return fmt.Sprintf("%.0f", v) }
func signed(part float64) string  { return fmt.Sprintf("%+.1f %%", 100*part) }
func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
func between(a, b float64) string { return whole(a) + " to " + whole(b) }
func (p Projection) page() page.Page {
	run := p.Budget.Run
	out := page.Page{
		Title: fmt.Sprintf("%v on %v %v", run.Model, run.GPUs, run.GPU),
		Lead: []string{fmt.Sprintf("%s tokens/s per GPU, 80 %% interval %s; %s model TFLOP/s per GPU (%v), MFU %s of the dense BF16 peak.",
			whole(p.Budget.Tokens), between(p.Range.P10, p.Range.P90), whole(p.Budget.TFLOPS), p.Budget.Convention, percent(p.Budget.MFU))},
	}
	add := func(title string, blocks ...page.Block) {
		out.Sections = append(out.Sections, page.Section{title, blocks})
	}
	notes := []page.Block{{Note: fmt.Sprintf("Parameters of %s, SHA-256 %s. A projection is an interval with its assumptions: "+
		"published training rates of one model on one GPU differ by a factor of five with the software alone.", p.Version, p.Hash)}}
	for _, note := range p.Notes {
		notes = append(notes, page.Block{Note: note})
	}
	headline := page.Table{Head: page.Cells("scenario, calibrated on 651 only", "+ DeepEP", "80 % interval", "+ MXFP8", "80 % interval")}
	headline.Head[1].Small, headline.Head[3].Small = "859 published", "918 published"
	for i, h := range p.Headlines {
		row := []page.Cell{{Text: h.Scenario.Name, Small: h.Scenario.About, Class: page.Words}}
		for k := 1; k <= 2; k++ {
			row = append(
				row,
				page.Cell{Text: whole(h.Budgets[k].Tokens), Small: signed(h.Error[k])},
				page.Cell{Text: between(p.Ranges[i][k].P10, p.Ranges[i][k].P90)},
			)
		}
		headline.Rows = append(headline.Rows, row)
	}
	const readings = "No scenario's agreement is proof: as_run and simple come close for different reasons. " +
		"Both figures were known while the model was written."
	notes = append(notes, page.Block{Table: &headline}, page.Block{Note: readings})
	if len(p.Headlines) > 0 {
		notes = append(notes, page.Block{Charts: []page.Chart{waterfall(p.Headlines[0])}})
	}
	add("From 651 to 918", notes...)
	add("Where the time goes", p.budget()...)
	if len(p.Swings) > 0 && len(p.Headlines) > 0 {
		add("What it depends on", page.Block{Charts: []page.Chart{tornado(p.Swings, p.Headlines[0].Budgets[1].Tokens)}})
	}
	if len(p.Effects.Rows) > 0 {
		add("Against published figures", p.validation()...)
	}
	return out
}

// budget is the table of the terms of the requested run, and the bars of the headlines.
func (p Projection) budget() []page.Block {
	table := page.Table{Head: page.Cells("term", "ms per token", "basis", "formula")}
	for _, t := range p.Budget.Terms {
		row := page.Cells(fmt.Sprint(t.Symbol), fmt.Sprintf("%.4f", t.MS), fmt.Sprint(t.Kind))
		row[0].Small = t.Symbol.About()
		table.Rows = append(table.Rows, append(row, page.Cell{Text: t.Formula, Small: t.Source, Class: page.Words}))
	}
	chart := page.Chart{
		ID: "budget", Title: "Time per token, by term", Kind: page.Rows, X: page.Axis{Name: "GPU-ms per token", Min: new(float64)},
		Caption: "Bars add up to the time per token; the number is tokens/s per GPU. " +
			"The residual is fitted to the first bar of each scenario and kept for the others.",
	}
	colorOf := map[projection.Symbol]int{}
	for _, h := range p.Headlines {
		for i, b := range h.Budgets {
			row, level := page.Row{Name: []string{"BF16", "DeepEP", "MXFP8"}[i] + ", " + h.Scenario.Name, Note: whole(b.Tokens)}, 0.0
			for _, t := range b.Terms {
				if _, ok := colorOf[t.Symbol]; !ok {
					colorOf[t.Symbol] = len(colorOf)
				}
				text := fmt.Sprintf("%s %s (%s): %.4f ms", t.Symbol, t.Symbol.About(), t.Kind, t.MS)
				row.Marks = append(row.Marks, page.Mark{Kind: page.Bar, From: level, To: level + t.MS, Color: colorOf[t.Symbol], Text: text})
				level += t.MS
			}
			chart.Rows = append(chart.Rows, row)
		}
	}
	if len(chart.Rows) == 0 {
		return []page.Block{{Table: &table}}
	}
	return []page.Block{{Charts: []page.Chart{chart}}, {Table: &table}}
}

// waterfall shows what each step of the headline costs or saves.
func waterfall(h projection.Headline) page.Chart {
	level := h.Budgets[0].MS
	chart := page.Chart{
		ID: "waterfall", Title: "651 to 859 to 918 tokens/s, as run", Kind: page.Rows, X: page.Axis{Name: "GPU-ms per token", Min: new(float64)},
		Caption: fmt.Sprintf(
			"Cost (orange) or saving (green) of each change in scenario %s: %s. Only the first bar is fitted.",
			h.Scenario.Name,
			h.Scenario.About,
		),
		Rows: []page.Row{{Name: "BF16", Note: whole(h.Budgets[0].Tokens) + " tokens/s", Marks: []page.Mark{{Kind: page.Bar, To: level}}}},
	}
	change := func(name string, delta float64) {
		color := 3
		if delta > 0 {
			color = 2
		}
		chart.Rows = append(
			chart.Rows,
			page.Row{Name: name, Note: fmt.Sprintf("%+.3f", delta), Marks: []page.Mark{{Kind: page.Bar, From: level, To: level + delta, Color: color}}},
		)
		level += delta
	}
	for i, b := range h.Budgets[1:] {
		from := h.Budgets[i]
		rest := b.MS - from.MS
		for _, s := range projection.Symbols() {
			if d := b.Term(s).MS - from.Term(s).MS; math.Abs(d) >= 0.004 { // smaller ones cannot be seen
				change(s.About(), d)
				rest -= d
			}
		}
		if math.Abs(rest) > 1e-4 {
			change("rest", rest)
		}
		name := []string{"DeepEP", "+ MXFP8"}[i]
		chart.Rows = append(chart.Rows, page.Row{Name: name, Note: whole(b.Tokens) + " tokens/s", Marks: []page.Mark{{Kind: page.Bar, To: b.MS, Color: 1}}})
	}
	return chart
}

// mostSwings is the number of parameters in the tornado chart.
const mostSwings = 12

func tornado(swings []projection.Swing, center float64) page.Chart {
	chart := page.Chart{
		ID: "tornado", Title: "One parameter at a time, from the low to the high end of its prior", Kind: page.Rows,
		X: page.Axis{Name: "tokens/s of one GPU, DeepEP as run"},
		Caption: "Orange is the low end and blue the high end, each with the value of the parameter. " +
			"The residual is fitted to 651 again each time.",
	}
	for _, s := range swings[:min(len(swings), mostSwings)] {
		chart.Rows = append(chart.Rows, page.Row{Name: s.Name, Note: fmt.Sprintf("%.3g to %.3g", s.Low, s.High), Marks: []page.Mark{
			{Kind: page.Bar, From: center, To: s.AtLow, Color: 2, Text: fmt.Sprintf("%.3g: %.0f", s.Low, s.AtLow)},
			{Kind: page.Bar, From: center, To: s.AtHigh, Color: 1, Text: fmt.Sprintf("%.3g: %.0f", s.High, s.AtHigh)},
		}})
	}
	return chart
}

// validation compares predictions with published figures.
func (p Projection) validation() (list []page.Block) {
	chart := page.Chart{
		ID: "validation", Title: "Predicted against published throughput, each cluster from the others", Wide: true,
		X: page.Axis{Name: "published tokens/s of one GPU", Log: true}, Y: page.Axis{Name: "predicted", Log: true},
		Caption: "The gray line is equality; thin lines are 80 % intervals.",
	}
	low, high := math.Inf(1), 0.0
	tables := []page.Block{}
	for i, t := range p.Effects.Tiers {
		name := fmt.Sprintf("%s, %s: mean absolute error %s", t.Name, t.About, percent(t.Error))
		c := page.Curve{Name: name, Color: 1 + i%(page.Colors-1), Dots: true, NoLine: true}
		table := page.Table{Head: page.Cells("row", "published", "predicted", "error", "interval")}
		for _, r := range p.Effects.Rows {
			if r.Tier != t.Name {
				continue
			}
			c.X, c.Y = append(c.X, r.Published), append(c.Y, r.Predicted)
			c.Low, c.High = append(c.Low, r.Low), append(c.High, r.High)
			low, high = min(low, r.Published), max(high, r.Published)
			row := page.Cells(r.ID, whole(r.Published), whole(r.Predicted), signed(r.Predicted/r.Published-1), between(r.Low, r.High))
			if row[0].Class = page.Words; !r.Inside() {
				row[4].Small = "outside"
			}
			table.Rows = append(table.Rows, row)
		}
		note := fmt.Sprintf("%s, %s: %d rows of %d clusters: mean absolute error %s (blind: %s), bias %s, %s inside the 80 %% intervals",
			t.Name, t.About, t.Rows, t.Clusters, percent(t.Error), percent(t.Blind), signed(t.Bias), percent(t.Inside))
		tables = append(tables, page.Block{Note: note})
		if len(table.Rows) > 0 {
			chart.Curves, tables = append(chart.Curves, c), append(tables, page.Block{Table: &table})
		}
	}
	chart.Curves = append(chart.Curves, page.Curve{Name: "equal", X: page.Values{low, high}, Y: page.Values{low, high}})
	list = append([]page.Block{{Charts: []page.Chart{chart}}}, tables...)
	for _, e := range p.Excluded {
		list = append(list, page.Block{Note: fmt.Sprintf("Not predicted: %s: %s.", e.Rows, e.Why)})
	}
	return list
}
