package report

// The page: one HTML file with its style and figures inside.

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"regexp"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// section is a group of figures under one heading.
type section struct {
	Title   string
	Figures []inlined
}

// drawing is a figure with its SVG.
type drawing struct {
	figure
	text []byte
}

// inlined is a figure inside the page.
type inlined struct {
	Name, Title, Caption string
	SVG                  template.HTML
}

// sections says where figures stand.
var sections = []struct {
	title   string
	figures []string
}{
	{"Equivalence", []string{"forest"}},
	{"Over training", []string{"loss", "difference", "held-out", "grad-norm"}},
	{"Experts and routing", []string{"imbalance", "router-agreement"}},
	{"Quantisation", []string{"sqnr", "sqnr-by-linear", "lost-values"}},
}

func page(p painter, drawings []drawing) ([]byte, error) {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	v := view{painter: p, Style: template.CSS(pageStyle), Light: variables(false), Dark: variables(true)}
	for _, s := range sections {
		group := section{Title: s.title}
		for _, name := range s.figures {
			for _, d := range drawings {
				if d.name == name {
					group.Figures = append(group.Figures, inlined{d.name, d.title, d.caption, d.inline()})
				}
			}
		}
		if len(group.Figures) > 0 {
			v.Sections = append(v.Sections, group)
		}
	}
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	return []byte(printable(out.String())), nil
}

// svgHead is everything up to the size of an SVG, which in a page is that of its place.
var svgHead = regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*" viewBox="[^"]*"`)

// inline returns the SVG for a page, with variables in place of colours, so that it follows the page into the dark. The text in it
// was escaped when it was drawn.
func (d drawing) inline() template.HTML {
	label := template.HTMLEscapeString(d.title)
	svg := svgHead.ReplaceAllLiteralString(string(d.text), fmt.Sprintf(
		`<svg role="img" aria-label="%s" viewBox="%g %g %g %g"`, label,
		margin.Points(), margin.Points(), (figureWidth-2*margin).Points(), (d.height-2*margin).Points())) // the page has margins of its own
	var pairs []string
	for _, s := range shades() {
		pairs = append(pairs, ":"+hex(s.light), ":var(--"+s.variable+")")
	}
	return template.HTML(strings.NewReplacer(pairs...).Replace(svg))
}

// variables defines the colours for one of the two schemes.
func variables(dark bool) template.CSS {
	var css strings.Builder
	for _, s := range shades() {
		value := s.light
		if dark {
			value = s.dark
		}
		fmt.Fprintf(&css, "--%s:%s;", s.variable, hex(value))
	}
	return template.CSS(css.String())
}
