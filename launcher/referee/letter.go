package referee

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"spmoe/moe/reference"
)

// The report in words, for a terminal of 80 columns.

const columns80 = 80

// Printer writes a report as it grows.
type Printer struct {
	out   io.Writer
	layer int
	begun bool
}

// NewPrinter returns a printer of the lines of modules, and of the letter at the end.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out, layer: -2} }

// Line prints the line of one module: errors in the units that rounding explains, and the verdict.
func (p *Printer) Line(l *ModuleLine) {
	if (l.Kind == string(reference.Residual) || l.Kind == string(reference.Handover)) && l.Verdict == Right {
		return // equalities that hold are only counted
	}
	if !p.begun {
		p.begun = true
		fmt.Fprintf(p.out, "%-38s %9s %9s %7s %7s\n", "module", "error", "rounding", "grads", "choices")
	}
	if l.Layer != p.layer && l.Layer >= 0 {
		fmt.Fprintf(p.out, "layer %d\n", l.Layer)
	}
	p.layer = l.Layer
	name := plain(shortName(l))
	if len(name) > 38 {
		name = "…" + name[len(name)-36:]
	}
	error, floor := "", ""
	if c := l.worst("output"); c != nil {
		error, floor = percent(c.Error), percent(c.Floor)
		if strings.HasSuffix(c.Statistic, "worst") && c.Wrong() {
			error, floor = percent(c.Worst), percent(c.WorstFloor)
		}
	}
	verdict := "ok"
	if l.Verdict != Right {
		verdict = strings.ToUpper(string(l.Verdict))
	}
	fmt.Fprintf(p.out, "%-38s %9s %9s %7s %7s  %s\n", name, error, floor, strainText(l.worst("grad_input", "gradient", "grad_logits")), strainText(l.worst("choice")), verdict)
}

// strainText writes a strain as the share of what would be alarming.
func strainText(c *Comparison) string {
	switch {
	case c == nil:
		return ""
	case c.Scaled:
		return "×" + factorText(c.Factor)
	case c.Strain > 999 || c.Strain != c.Strain:
		return ">999"
	}
	return fmt.Sprintf("%.2f", c.Strain)
}

// shortName is the path of a module inside its layer.
func shortName(l *ModuleLine) string {
	prefix := fmt.Sprintf("model.layers.%d", l.Layer)
	rest, inLayer := strings.CutPrefix(l.Path, prefix)
	switch {
	case l.Layer < 0 || !inLayer:
		return l.Path
	case rest == "":
		return "  (the whole layer)"
	}
	return "  " + strings.TrimPrefix(rest, ".")
}

//go:embed letter.txt
var letterText string

// letter writes paragraphs, each on a line behind its lead and a bar.
var letter = template.Must(template.New("letter").Funcs(template.FuncMap{
	"plain": plain, "percent": percent, "ints": joinInts,
	"first": func(all []*Finding) []*Finding { return all[:min(12, len(all))] },
	"names": func(all []string) string {
		return fmt.Sprintf("%s and %d more", plain(strings.Join(all[:3], ", ")), len(all)-3)
	},
	"number": func(i int) string { return fmt.Sprintf("%2d. ", i+1) },
	"list": func(title string, all []string, most int) map[string]any {
		var items []string
		for _, item := range all[:min(most, len(all))] {
			items = append(items, plain(item))
		}
		if n := len(all) - most; n > 0 {
			items = append(items, fmt.Sprintf("and %d more", n))
		}
		return map[string]any{"Title": title, "Items": items}
	},
	"largest": func(strains map[string]float64) string {
		worst, strain := "", 0.0
		for _, name := range slices.Sorted(maps.Keys(strains)) {
			if strains[name] > strain {
				worst, strain = name, strains[name]
			}
		}
		return fmt.Sprintf("The largest statistic of these is %.2f of its threshold (%s).", strain, worst)
	},
}).Parse(letterText))

// Letter prints the verdict in words.
func (p *Printer) Letter(r *Report) error {
	var text strings.Builder
	if err := letter.Execute(&text, r); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if lead, words, ok := strings.Cut(line, "|"); ok {
			p.paragraph(lead, words)
		}
	}
	return nil
}

// paragraph prints text wrapped at 80 columns, behind a lead that later lines are indented by.
func (p *Printer) paragraph(lead, text string) {
	width := columns80 - len(lead)
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			fmt.Fprintf(p.out, "%s%s\n", lead, line)
			lead, line = strings.Repeat(" ", len(lead)), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintf(p.out, "%s%s\n", lead, line)
}

// plain removes what a terminal would execute: names come from the folder.
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	return strings.Trim(strconv.Quote(s), `"`)
}
