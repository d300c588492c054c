package report

// The page: one HTML file that contains its style and figures.

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"spmoe/launcher/report/figure"
)

//go:embed page.html
var pageText string

// headings assign figures to sections.
var headings = []figure.Heading{
	{Title: "Equivalence", Figures: []string{"forest"}},
	{Title: "Over training", Figures: []string{"loss", "difference", "held-out", "grad-norm"}},
	{Title: "Experts and routing", Figures: []string{"imbalance", "router-agreement"}},
	{Title: "Quantization", Figures: []string{"sqnr", "sqnr-by-linear", "lost-values"}},
}

func page(p painter, figures []figure.Figure) ([]byte, error) {
	sections, err := figure.Sections(headings, figures)
	if err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	v := view{painter: p, Sections: sections}
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	return []byte(figure.Printable(out.String())), nil
}
