package referee

import (
	"fmt"
	"io"
	"strconv"
	"strings"

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

// Letter prints the verdict in words.
func (p *Printer) Letter(r *Report) {
	p.paragraph("", "%s", "")
	p.list("Read", r.Read, 8)
	p.list("Not there", r.Missing, 8)
	p.list("Not compared", r.Unread, 4)
	p.list("Names that the model does not have", r.Unknown, 4)
	switch r.Verdict {
	case Right:
		p.paragraph("", "RIGHT: %d comparisons, none beyond what rounding explains.", r.Compared)
	case CannotTell:
		p.paragraph("", "CANNOT TELL: %d comparisons, none wrong.", r.Compared)
	case Wrong:
		first := r.Findings[0]
		p.paragraph("", "WRONG. First in %s (%s).", first.Module, first.Part)
		for i, f := range r.Findings[:min(12, len(r.Findings))] {
			if i == 1 {
				p.paragraph("", "Further findings, each judged on its own input:")
			}
			p.finding(i+1, f)
		}
		if n := len(r.Findings) - 12; n > 0 {
			p.paragraph("", "%s more: --json lists all.", fmt.Sprintf("%d findings", n))
		}
	}
	p.list("Cannot be told", r.Doubts, 8)
	if r.Compared > 0 {
		worst, strain := "", 0.0
		for name, s := range r.Strains {
			if s > strain {
				worst, strain = name, s
			}
		}
		p.paragraph("", "An error of %s of a tensor would have been seen in every module that is right. The largest statistic of these is %.2f of its threshold (%s).", percent(r.Resolution), strain, worst)
	}
}

func (p *Printer) finding(number int, f *Finding) {
	p.paragraph(fmt.Sprintf("%2d. ", number), "%s, %s:", f.Module, f.Part)
	for _, says := range f.Says {
		p.paragraph("    ", "%s", says)
	}
	if n := len(f.Names); n > len(f.Says) && n > 3 {
		p.paragraph("    ", "tensors: %s%s", strings.Join(f.Names[:min(3, n)], ", "), more(n-3))
	}
	if len(f.Tokens) > 0 {
		p.paragraph("    ", "worst tokens: %s", joinInts(f.Tokens))
	}
	switch {
	case len(f.Causes) == 1:
		p.paragraph("    ", "Explained by: %s [%s].", f.Causes[0].Says, f.Causes[0].Name)
	case len(f.Causes) > 1:
		p.paragraph("    ", "Explained equally by:")
		for _, c := range f.Causes {
			p.paragraph("      - ", "%s [%s]", c.Says, c.Name)
		}
	case f.Factor == 0 && f.Part != "folder" && f.Part != "gradient":
		p.paragraph("    ", "No known mistake explains it.")
	}
	if f.Look != "" {
		p.paragraph("    ", "Look at %s.", f.Look)
	}
}

func (p *Printer) list(title string, items []string, most int) {
	if len(items) == 0 {
		return
	}
	p.paragraph("", "%s:", title)
	for _, item := range items[:min(most, len(items))] {
		p.paragraph("  - ", "%s", item)
	}
	if n := len(items) - most; n > 0 {
		p.paragraph("  - ", "and %d more", n)
	}
}

// paragraph prints text wrapped at 80 columns, behind a lead that later lines are indented by.
func (p *Printer) paragraph(lead, format string, args ...any) {
	width := columns80 - len(lead)
	line := ""
	for _, word := range strings.Fields(plain(fmt.Sprintf(format, args...))) {
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
