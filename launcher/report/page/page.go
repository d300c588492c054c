// Package page writes the report page of a run: one HTML file, with the run's data as JSON, from
// which page.js makes its sections and charts. It loads nothing from elsewhere.
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

// File is the name of a page in the folder of its run.
const File = "report.html"

// Page is the content of a page.
type Page struct {
	Title   string            `json:"title"`
	Reload  float64           `json:"reload,omitempty"` // seconds after which there is a newer page; 0: never
	Run     *Run              `json:"run,omitempty"`
	Figures []record.Quantity `json:"figures,omitempty"`
}

// Curve is a series of points.
type Curve struct {
	X    Values `json:"x"`
	Y    Values `json:"y"`
	Low  Values `json:"low,omitempty"` // the range around each point
	High Values `json:"high,omitempty"`
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
