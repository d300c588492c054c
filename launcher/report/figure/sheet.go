package figure

// What pages with figures share: the style sheet, in light and dark, and inline figures.

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
)

//go:embed page.css
var sheet string

// Head returns what the head of a page contains. The page needs no other file.
func Head(title string) template.HTML {
	return template.HTML(`<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>` + template.HTMLEscapeString(title) + `</title>
<link rel="icon" href="` + icon() + `"/>
<style>
` + style() + `</style>`)
}

// style returns the style sheet.
func style() string {
	return ":root { " + variables(false) + " }\n@media (prefers-color-scheme: dark) { :root { " + variables(true) + " } }\n" + sheet
}

// icon returns the icon of pages as a data URL.
func icon() string {
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="%s"/><path d="M3 3v10h10" fill="none" stroke="#fff"/><path d="M4 4q2 7 9 7" fill="none" stroke="#fff" stroke-width="2"/></svg>`, Hex(Palette[1].Light))
	return "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(svg))
}

// Section is a group of figures under one heading.
type Section struct {
	Title   string
	Figures []Inlined
}

// ID returns the address of the section inside its page.
func (s Section) ID() string { return strings.ReplaceAll(strings.ToLower(s.Title), " ", "-") }

// Inlined is a figure inside a page.
type Inlined struct {
	Name, Caption string
	Title         string        // empty if its section has the same
	SVG           template.HTML // one for wide and one for narrow pages
}

// Heading is the title of a section and the names of its figures.
type Heading struct {
	Title   string
	Figures []string
}

// Sections draws figures for a page and groups them under their headings. It omits headings without
// figures.
func Sections(headings []Heading, figures []Figure) (list []Section, err error) {
	for _, h := range headings {
		group := Section{Title: h.Title}
		for _, name := range h.Figures {
			for _, f := range figures {
				if f.Name != name {
					continue
				}
				in := Inlined{Name: f.Name, Caption: f.Caption, Title: f.Title}
				if f.Title == h.Title {
					in.Title = ""
				}
				if in.SVG, err = f.inline(); err != nil {
					return nil, err
				}
				group.Figures = append(group.Figures, in)
			}
		}
		if len(group.Figures) > 0 {
			list = append(list, group)
		}
	}
	return list, nil
}

// inline returns the figure for a page, in both layouts and with the choice of its views.
func (f Figure) inline() (all template.HTML, err error) {
	views := append([]View{{f.First, f.Panels}}, f.Views...)
	if len(views) > 1 {
		all = f.chooser(views)
	}
	for i, v := range views {
		f.Panels = v.Panels
		for _, l := range []layout{wide, narrow} {
			text, height, err := f.svg(l)
			if err != nil {
				return "", err
			}
			class, label := l.class, f.Title
			if len(views) > 1 {
				class, label = fmt.Sprintf("%s view%d", class, i+1), label+", "+v.Name
			}
			all += forPage(text, fmt.Sprintf(`<svg class="%s" role="img" aria-label="%s" viewBox="%g %g %g %g"`, class, template.HTMLEscapeString(label),
				margin.Points(), margin.Points(), (l.width-2*margin).Points(), (height-2*margin).Points())) // the page has margins of its own
		}
	}
	return all, nil
}

// chooser returns the buttons that choose a view. The style sheet hides the others, without a
// script.
func (f Figure) chooser(views []View) template.HTML {
	var b strings.Builder
	for i, v := range views {
		checked := ""
		if i == 0 {
			checked = ` checked="checked"`
		}
		id, name := template.HTMLEscapeString(fmt.Sprintf("%s-view%d", f.Name, i+1)), template.HTMLEscapeString(f.Name+"-view")
		fmt.Fprintf(&b, `<input type="radio" name="%s" id="%s"%s/><label for="%s">%s</label>`+"\n", name, id, checked, id, template.HTMLEscapeString(v.Name))
	}
	return template.HTML(b.String())
}

// svgHead matches the beginning of an SVG up to its size. Inside a page, the page determines the
// size. fontStyle matches what the style sheet says about the texts of all figures.
var (
	svgHead   = regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*" viewBox="[^"]*"`)
	fontStyle = regexp.MustCompile(`font-family:[^;"]*;|font-variant:normal;|font-weight:normal;|font-style:normal;`)
)

// forPage returns an SVG with another head for a page. It replaces colors with CSS variables, so
// that the figure follows the page's color scheme. The text in it was escaped when it was drawn.
func forPage(text []byte, head string) template.HTML {
	svg := fontStyle.ReplaceAllLiteralString(svgHead.ReplaceAllLiteralString(string(text), head), "")
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
func variables(dark bool) string {
	var css strings.Builder
	for _, s := range Shades() {
		value := s.Light
		if dark {
			value = s.Dark
		}
		fmt.Fprintf(&css, "--%s:%s;", s.Variable, Hex(value))
	}
	return css.String()
}
