// Package wholerun makes the page of a run of a run file: what it was expected to reach, what it
// has reached, its stages and its sample.
package wholerun

import (
	"bytes"
	_ "embed"
	"html/template"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/runfile"
	"spmoe/launcher/stages"
	"spmoe/launcher/system"
)

//go:embed page.html
var pageText string

// Run is the content of a page.
type Run struct {
	Title  string
	Rows   []runfile.Row
	Missed bool   // the loss is worse than expected
	About  string // where the expectation comes from
	Stages []stages.Entry
	Facts  []Fact
	Links  []Link
	Sample string // uncut; empty: none
	File   string // the text of the run file
}

// Fact is a name with its value.
type Fact struct{ Name, Value string }

// Link is a file in the folder of the page.
type Link struct{ Path, About string }

// view is the data of the template.
type view struct{ Run }

// Head returns the content of the page's head.
func (v view) Head() template.HTML { return figure.Head(v.Title) }

// Page returns the page, which needs no network.
func (r Run) Page() ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{"clock": clock, "bytes": system.Bytes}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, view{r}); err != nil {
		return nil, err
	}
	return []byte(figure.Printable(out.String())), nil
}

func clock(seconds float64) string {
	return report.Clock(time.Duration(seconds * float64(time.Second)))
}
