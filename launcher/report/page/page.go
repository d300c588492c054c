// Package page writes report pages: one HTML file each, with its data as JSON, which page.js draws.
// It loads nothing from elsewhere.
//
// A page is declared, not drawn:
//
//	Page     Title, Badges, Lead (sentences), Facts (numbers as cards), Sections
//	Section  Title, Blocks
//	Block    one of Text, Note, Code, Table, Terms and Charts; with a Summary it is folded
//	Table    Head and Rows of Cells
//	Chart    ID, Title, Caption, X and Y axes, and by Kind
//	         ""     Curves: lines over each other, with the range of each point as a band
//	         Rows   Rows of marks over a common axis: bars, or intervals and dots (a forest plot)
//	         Heat   a map of Cells
//
//	losses := page.Section{Title: "Losses", Blocks: []page.Block{
//		{Table: &page.Table{Head: page.Cells("arm", "loss"), Rows: rows}},
//		{Charts: []page.Chart{{ID: "loss", Title: "Loss", Curves: curves}}},
//	}}
//	err := page.Page{Title: "two arms", Sections: []page.Section{losses}}.Write("report.html")
//
// A curve of a run has at most 2,000 points. [WriteRun] writes the page of a run, whose sections
// the script makes from its data.
//
// Smoothing, axis, zoom and hidden curves are controls of the reader. The URL's hash keeps them, so
// that they survive a reload and can be sent with a link.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// File is the name of a page in the folder of what it reports.
const File = "report.html"

// Page is the content of a page.
type Page struct {
	Title    string    `json:"title"`
	Badges   []Badge   `json:"badges,omitempty"`
	Lead     []string  `json:"lead,omitempty"` // the most important sentences
	Facts    []Fact    `json:"facts,omitempty"`
	Sections []Section `json:"sections,omitempty"`
	Reload   float64   `json:"reload,omitempty"` // seconds after which there is a newer page; 0: never

	Run     *Run              `json:"run,omitempty"` // the script makes the rest of its page
	Figures []record.Quantity `json:"figures,omitempty"`
}

// Judgments of what a badge or a cell says.
const (
	Good = "good"
	Bad  = "bad"
	Warn = "warn"
)

// Badge is a state in few words.
type Badge struct {
	Text  string `json:"text"`
	Class string `json:"class,omitempty"` // Good, Bad or Warn
}

// Fact is a number with its name and an explanation.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	More  string `json:"more,omitempty"`
}

// Section is a heading with blocks below it.
type Section struct {
	Title  string  `json:"title"`
	Blocks []Block `json:"blocks"`
}

// Block is one of these. With a Summary it is folded under that.
type Block struct {
	Summary string  `json:"summary,omitempty"`
	Text    string  `json:"text,omitempty"`
	Note    string  `json:"note,omitempty"` // a text in small print
	Code    string  `json:"code,omitempty"`
	Table   *Table  `json:"table,omitempty"`
	Terms   []Term  `json:"terms,omitempty"`
	Charts  []Chart `json:"charts,omitempty"`
}

// Term is a name with what it stands for.
type Term struct {
	Name  string `json:"name"`
	Texts []Cell `json:"texts"`
}

// Table is a table. The first column names the rows.
type Table struct {
	Head []Cell   `json:"head"`
	Rows [][]Cell `json:"rows"`
}

// Cell is a cell of a table.
type Cell struct {
	Text  string `json:"text,omitempty"`
	Small string `json:"small,omitempty"` // below the text, lines separated by "\n"
	Class string `json:"class,omitempty"` // Good, Bad or Warn: a badge
	Color *int   `json:"color,omitempty"` // of the curves that it is about
}

// Cells returns a row of plain cells.
func Cells(texts ...string) (row []Cell) {
	for _, text := range texts {
		row = append(row, Cell{Text: text})
	}
	return row
}

// Rows is the kind of a chart of marks in named rows over a common axis. The zero value draws
// curves.
const Rows = "rows"

// Chart is a diagram.
type Chart struct {
	ID      string `json:"id"` // distinct on a page
	Title   string `json:"title"`
	Caption string `json:"caption,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Wide    bool   `json:"wide,omitempty"` // takes the whole width of a page

	X      Axis     `json:"x,omitzero"`
	Y      Axis     `json:"y,omitzero"`
	Zone   *Range   `json:"zone,omitempty"` // marked values: of y, or of x in a chart of rows
	Smooth bool     `json:"smooth,omitempty"`
	Curves []Curve  `json:"curves,omitempty"`
	Rows   []Row    `json:"rows,omitempty"`
	Cells  *HeatMap `json:"cells,omitempty"`
}

// Axis is an axis. Without limits it spans the data.
type Axis struct {
	Name  string   `json:"name,omitempty"`
	Log   bool     `json:"log,omitempty"`
	Min   *float64 `json:"min,omitempty"` // the axis begins at most here
	Range *Range   `json:"range,omitempty"`
}

// Range is a closed interval.
type Range [2]float64

// Colors is the number of colors. A curve of color c has that of c modulo Colors.
const Colors = 7

// Curve is a series of points.
type Curve struct {
	Name  string `json:"name"`
	Color int    `json:"color"`
	Dash  int    `json:"dash,omitempty"` // style of the line, from 0
	Dots  bool   `json:"dots,omitempty"` // a mark at each point
	X     Values `json:"x"`
	Y     Values `json:"y"`
	Low   Values `json:"low,omitempty"` // the range around each point
	High  Values `json:"high,omitempty"`
}

// Row is a row of a chart of rows.
type Row struct {
	Name  string `json:"name"`
	Note  string `json:"note,omitempty"` // to the right of the marks
	Marks []Mark `json:"marks,omitempty"`
}

// Kinds of marks.
const (
	Interval = "interval"
	Dot      = "dot"
	Ring     = "ring"
)

// Mark is a mark in a row, from one value to another.
type Mark struct {
	Kind  string  `json:"kind"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Color int     `json:"color"`
	Text  string  `json:"text,omitempty"` // shown under the pointer
}

// HeatMap has a value per row and step. A color shows the logarithm of values between 1/Most and
// Most.
type HeatMap struct {
	Rows   []string `json:"rows"`
	Groups []string `json:"groups"` // names of blocks of rows of the same size
	Steps  Values   `json:"steps"`
	Values []Values `json:"values"` // [row][step]
	Most   float64  `json:"most"`
}

// Values are numbers with eight digits. Those that are not finite are null.
type Values []float64

// MarshalJSON implements [json.Marshaler].
func (list Values) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, v := range list {
		if i > 0 {
			text = append(text, ',')
		}
		if report.Finite(v) {
			text = strconv.AppendFloat(text, v, 'g', 8, 64)
		} else {
			text = append(text, "null"...)
		}
	}
	return append(text, ']'), nil
}

//go:embed page.css
var sheet string

//go:embed page.js
var script string

// icon is the icon of pages.
const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#0072b2"/><path d="M3 3v10h10" fill="none" stroke="#fff"/>
<path d="M4 4q2 7 9 7" fill="none" stroke="#fff" stroke-width="2"/></svg>`

// policy allows only the script of this package.
func policy() string {
	hash := sha256.Sum256([]byte(script))
	return fmt.Sprintf(
		"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(hash[:]),
	)
}

// frame is the page around its parts.
const frame = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}">
<style>
{sheet}</style>
</head>
<body>
<main><noscript>This page draws its data with a script, and scripts are turned off.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
`

// HTML returns the page as a file.
func (p Page) HTML() ([]byte, error) {
	data, err := json.Marshal(p) // escapes < and > so that the data cannot end its element
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Title, err)
	}
	return []byte(strings.NewReplacer(
		"{policy}", policy(),
		"{title}", html.EscapeString(report.Printable(p.Title)),
		"{icon}", base64.StdEncoding.EncodeToString([]byte(icon)),
		"{sheet}", sheet,
		"{data}", string(data),
		"{script}", script,
	).Replace(frame)), nil
}

// Write writes the page to a file, which is either complete or unchanged.
func (p Page) Write(path string) error {
	text, err := p.HTML()
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Clean(path), text)
}
