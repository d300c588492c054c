package runs

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/report/overview"
)

//go:embed page.html
var pageText string

// headings assigns figures to sections.
func headings() []figure.Heading {
	list := []figure.Heading{
		{Title: "Loss", Figures: []string{"validation", "loss", "loss-time"}},
		{Title: "Speed", Figures: []string{"speed"}},
	}
	for _, q := range record.Quantities {
		if q.Compare != "" {
			list = append(list, figure.Heading{Title: q.Compare, Figures: []string{q.Figure}})
		}
	}
	return list
}

// view is the data of the template.
type view struct {
	Title    string
	Rows     []row
	Settings []setting
	Sections []figure.Section
}

// Head returns the content of the page's head.
func (v view) Head() template.HTML { return figure.Head(v.Title) }

// row is a run in the table of results.
type row struct {
	Shade, Name, Link, State string // Link is empty if the run has no report
	Steps, Tokens, Time      string
	Validation, Best, Train  string
	Speed, MFU, Machine      string
}

// page renders the page of some runs for a folder, from which its links begin.
func page(folder string, list []overview.Run) ([]byte, error) {
	names := namesOf(list)
	looks := styles(names)
	sections, err := figure.Sections(headings(), figures(list, looks))
	if err != nil {
		return nil, err
	}
	v := view{Title: report.Plural(len(list), "run"), Settings: differences(list), Sections: sections}
	for i, r := range list {
		v.Rows = append(v.Rows, newRow(folder, names[i], r, looks[i]))
	}
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		return nil, err
	}
	return []byte(figure.Printable(out.String())), nil
}

// longest is the maximum number of characters of a name.
const longest = 28

// namesOf returns the names of the runs' folders, or their paths if names are equal. It shortens
// long ones at their beginning.
func namesOf(list []overview.Run) (names []string) {
	for _, r := range list {
		names = append(names, r.Title())
	}
	sorted := slices.Sorted(slices.Values(names))
	equal := len(slices.Compact(sorted)) < len(names)
	for i, r := range list {
		if equal {
			names[i] = filepath.ToSlash(filepath.Clean(r.Folder))
		}
		if text := []rune(figure.Printable(names[i])); len(text) > longest {
			names[i] = "…" + string(text[len(text)-longest+1:])
		}
	}
	return names
}

func newRow(folder, name string, r overview.Run, look figure.SeriesStyle) row {
	validation, best := last(figure.HeldOut(&r.Log))
	train, _ := last(figure.Steps(&r.Log, "loss").Trailing(10))
	tokens, mfu := speed(r)
	w := row{
		Shade: look.Shade.Variable, Name: name, Link: link(folder, r.Folder), State: r.State(),
		Steps: report.Thousands(float64(r.Made())), Tokens: report.Thousands(float64(r.Made()) * r.TokensPerStep()), Time: duration(r),
		Validation: figure.Loss(validation), Best: figure.Loss(best), Train: figure.Loss(train), Speed: tokens, MFU: mfu,
	}
	if n := len(r.Log.Starts); n > 0 {
		s := r.Log.Starts[n-1]
		w.Machine = fmt.Sprintf("%s on %s, %s, %s", report.Plural(s.Ranks, "rank"), s.CPU, report.Plural(s.Cores, "core"), s.Tier)
	}
	return w
}

// link returns the address of a run's report in a page of a folder; empty if there is none.
func link(folder, run string) string {
	path := filepath.Join(run, overview.File)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	from, err := filepath.Abs(folder)
	to, failed := filepath.Abs(path)
	if err != nil || failed != nil {
		return ""
	}
	relative, err := filepath.Rel(from, to)
	if err != nil {
		return ""
	}
	return "./" + filepath.ToSlash(relative) // a name with a colon is no scheme
}
