package page

// The page of a projection: its terms as a chart and a table, next to published runs.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"spmoe/bench/projection"
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

func (p Projection) page() Page {
	b := p.Budget
	chart := Chart{ID: "budget", Title: "Time per token, by term", Kind: Rows, X: Axis{Name: "GPU-ms per token", Min: new(float64)}}
	terms := Table{Head: Cells("term", "ms per token", "formula")}
	for i, t := range b.Terms {
		chart.Rows = append(chart.Rows, Row{Name: t.Symbol.About(), Note: fmt.Sprintf("%.4f", t.MS), Marks: []Mark{{Kind: Bar, To: t.MS, Color: i % Colors}}})
		terms.Rows = append(terms.Rows, []Cell{{Text: t.Symbol.String(), Small: t.Symbol.About()}, {Text: fmt.Sprintf("%.4f", t.MS)}, {Text: t.Formula, Class: Words}})
	}
	published := Table{Head: Cells("published run", "framework", "published", "formula")}
	for _, r := range p.Published {
		published.Rows = append(published.Rows, Cells(r.ID, r.Framework, fmt.Sprintf("%.0f", r.Published), fmt.Sprintf("%.0f (%.0f to %.0f)", r.Projected, r.Low, r.High)))
	}
	blocks := []Block{{Charts: []Chart{chart}}, {Table: &terms}, {Table: &published}, {Note: projection.Limits()}}
	for _, note := range append(p.Notes, fmt.Sprintf("Constants SHA-256 %.12s", b.Fit)) {
		blocks = append(blocks, Block{Note: note})
	}
	return Page{
		Title:    fmt.Sprintf("%s on %d %s", b.Run.Model, b.Run.GPUs, b.Run.GPU),
		Lead:     []string{fmt.Sprintf("%.0f tokens/s per GPU, 80 %% interval %.0f to %.0f", b.Tokens, b.Low, b.High)},
		Sections: []Section{{"Where the time goes", blocks}},
	}
}
