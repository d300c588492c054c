package measuring

// The page of a projection: its terms as a chart and a table, next to published runs.

import (
	"encoding/json"
	"fmt"
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
	Budget    projection.Budget
	Published []PublishedRun // that resemble it
	Notes     []string
}

// PublishedRun is a published run and what the formula gives for it.
type PublishedRun struct {
	ID, Framework        string
	Published, Projected float64 // tokens/s per GPU
	Low, High            float64
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

func (p Projection) page() page.Page {
	b := p.Budget
	chart := page.Chart{ID: "budget", Title: "Time per token, by term", Kind: page.Rows, X: page.Axis{Name: "GPU-ms per token", Min: new(float64)}}
	terms := page.Table{Head: page.Cells("term", "ms per token", "formula")}
	for i, t := range b.Terms {
		chart.Rows = append(chart.Rows, page.Row{Name: t.Symbol.About(), Note: fmt.Sprintf("%.4f", t.MS), Marks: []page.Mark{{Kind: page.Bar, To: t.MS, Color: i % page.Colors}}})
		terms.Rows = append(terms.Rows, []page.Cell{{Text: t.Symbol.String(), Small: t.Symbol.About()}, {Text: fmt.Sprintf("%.4f", t.MS)}, {Text: t.Formula, Class: page.Words}})
	}
	published := page.Table{Head: page.Cells("published run", "framework", "published", "formula")}
	for _, r := range p.Published {
		published.Rows = append(published.Rows, page.Cells(r.ID, r.Framework, fmt.Sprintf("%.0f", r.Published), fmt.Sprintf("%.0f (%.0f to %.0f)", r.Projected, r.Low, r.High)))
	}
	blocks := []page.Block{{Charts: []page.Chart{chart}}, {Table: &terms}, {Table: &published}, {Note: projection.Limits()}}
	for _, note := range append(p.Notes, fmt.Sprintf("Constants SHA-256 %.12s", b.Fit)) {
		blocks = append(blocks, page.Block{Note: note})
	}
	return page.Page{
		Title:    fmt.Sprintf("%s on %d %s", b.Run.Model, b.Run.GPUs, b.Run.GPU),
		Lead:     []string{fmt.Sprintf("%.0f tokens/s per GPU, 80 %% interval %.0f to %.0f", b.Tokens, b.Low, b.High)},
		Sections: []page.Section{{Title: "Where the time goes", Blocks: blocks}},
	}
}
