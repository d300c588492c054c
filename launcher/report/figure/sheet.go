package figure

// What pages with figures share: the style sheet, in light and dark, and inline figures.

import (
	_ "embed"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
)

//go:embed page.css
var sheet string

// Style returns the style sheet of a page. It needs no other file.
func Style() template.CSS {
	return ":root { " + variables(false) + " }\n@media (prefers-color-scheme: dark) { :root { " + variables(true) + " } }\n" + template.CSS(sheet)
}

// Section is a group of figures under one heading.
type Section struct {
	Title   string
	Figures []Inlined
}

// Drawing is a figure with its SVG.
type Drawing struct {
	Figure
	Text []byte
}

// Inlined is a figure inside a page.
type Inlined struct {
	Name, Title, Caption string
	SVG                  template.HTML
}

// Heading is the title of a section and the names of its figures.
type Heading struct {
	Title   string
	Figures []string
}

// Sections groups figures under their headings. It omits headings without figures.
func Sections(headings []Heading, drawings []Drawing) (list []Section) {
	for _, h := range headings {
		group := Section{Title: h.Title}
		for _, name := range h.Figures {
			for _, d := range drawings {
				if d.Name == name {
					group.Figures = append(group.Figures, Inlined{d.Name, d.Title, d.Caption, d.inline()})
				}
			}
		}
		if len(group.Figures) > 0 {
			list = append(list, group)
		}
	}
	return list
}

// svgHead matches the beginning of an SVG up to its size. Inside a page, the page determines the
// size.
var svgHead = regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*" viewBox="[^"]*"`)

// inline returns the SVG for a page. It replaces colors with CSS variables, so that the figure
// follows the page's color scheme. The text in it was escaped when it was drawn.
func (d Drawing) inline() template.HTML {
	label := template.HTMLEscapeString(d.Title)
	svg := svgHead.ReplaceAllLiteralString(string(d.Text), fmt.Sprintf(
		`<svg role="img" aria-label="%s" viewBox="%g %g %g %g"`, label,
		margin.Points(), margin.Points(), (figureWidth-2*margin).Points(), (d.Height-2*margin).Points())) // the page has margins of its own
	return template.HTML(svgColor.ReplaceAllStringFunc(svg, func(color string) string {
		for _, s := range Shades() {
			if s.is(color[1:]) {
				return ":var(--" + s.Variable + ")"
			}
		}
		return color
	}))
}

// svgColor matches a color in a style attribute of an SVG.
var svgColor = regexp.MustCompile(`:#[0-9A-F]{6}`)

// is reports whether a color is the light shade. The SVG canvas rounds the components of
// translucent colors down.
func (s Shade) is(color string) bool {
	rgb, err := strconv.ParseUint(color[1:], 16, 32)
	for bits := 0; bits < 24; bits += 8 {
		if less := int(s.Light>>bits&255) - int(rgb>>bits&255); less < 0 || less > 1 {
			return false
		}
	}
	return err == nil
}

// variables defines the colors of one color scheme.
func variables(dark bool) template.CSS {
	var css strings.Builder
	for _, s := range Shades() {
		value := s.Light
		if dark {
			value = s.Dark
		}
		fmt.Fprintf(&css, "--%s:%s;", s.Variable, Hex(value))
	}
	return template.CSS(css.String())
}
