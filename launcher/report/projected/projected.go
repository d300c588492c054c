// Package projected writes the report of a projection: one self-contained page, its figures as
// files, and all numbers as JSON.
package projected

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path/filepath"

	"spmoe/bench/projection"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/system"
)

// Report is the content of the page.
type Report struct {
	Headlines []projection.Headline
	Ranges    [][3]projection.Range // of the headline throughputs
	Readings  [3]projection.Range   // of the same over all readings of the published runs
	Budget    projection.Budget     // of the requested run
	Range     projection.Range      // of its throughput
	Swings    []projection.Swing    // of the DeepEP scenario
	Groups    []projection.Group
	Gates     []projection.Gate
	Excluded  []projection.Excluded
	Version   string // of the parameters
	Hash      string
	Notes     []string
}

//go:embed page.html
var pageText string

// names returns the names of the figures.
func names() []string { return []string{"waterfall", "budget", "tornado", "validation"} }

// Write writes the page, its plots and projection.json to a folder.
func Write(dir string, r Report) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	figures := r.figures()
	if err := figure.WritePlots(dir, figures, names()); err != nil {
		return err
	}
	page, err := r.page(figures)
	if err != nil {
		return err
	}
	if err := WriteNumbers(dir, r); err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(dir, "projection.html"), page)
}

// WriteNumbers writes projection.json, which has all numbers of a report, to a folder.
func WriteNumbers(dir string, r Report) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(dir, "projection.json"), append(text, '\n'))
}

var headings = []figure.Heading{
	{Title: "From 651 to 918", Figures: []string{"waterfall"}},
	{Title: "Where the time goes", Figures: []string{"budget"}},
	{Title: "What it depends on", Figures: []string{"tornado"}},
	{Title: "Against published figures", Figures: []string{"validation"}},
}

// view is the data of the template.
type view struct {
	Report
	Head     template.HTML
	Sections []figure.Section
}

func (r Report) page(figures []figure.Figure) ([]byte, error) {
	sections, err := figure.Sections(headings, figures)
	if err != nil {
		return nil, fmt.Errorf("projection.html: %w", err)
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"n":       func(v float64) string { return fmt.Sprintf("%.0f", v) },
		"ms":      func(v float64) string { return fmt.Sprintf("%.4f", v) },
		"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
		"signed":  func(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) },
		"value":   func(v float64) string { return fmt.Sprintf("%.4g", v) },
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("projection.html: %w", err)
	}
	run := r.Budget.Run
	title := fmt.Sprintf("Projection: %v on %v %v", run.Model, run.GPUs, run.GPU)
	var out bytes.Buffer
	if err := t.Execute(&out, view{r, figure.Head(title), sections}); err != nil {
		return nil, fmt.Errorf("projection.html: %w", err)
	}
	return []byte(figure.Printable(out.String())), nil
}
