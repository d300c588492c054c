package report

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/convergence"
	"spmoe/launcher/report/figure"
)

// stylesOf gives the baseline a broad grey line, the compared arms solid colours, and ablations
// thin dashed ones. When the colours run out, they repeat with dots.
func stylesOf(arms []convergence.Arm) []figure.SeriesStyle {
	styles := make([]figure.SeriesStyle, len(arms))
	for i, arm := range arms {
		n, repeated := i, false
		if i >= len(figure.Palette) {
			n, repeated = 1+(i-1)%(len(figure.Palette)-1), true
		}
		l := figure.SeriesStyle{Name: figure.Printable(arm.Name), Shade: figure.Palette[n]}
		l.Line = draw.LineStyle{Color: l.Shade.Color(), Width: vg.Points(1.5)}
		switch {
		case i == 0:
			l.Line.Width = vg.Points(3.2) // visible below lines that coincide with it
		case arm.Ablation:
			l.Line.Width, l.Line.Dashes = vg.Points(1.2), []vg.Length{5, 2.5}
		}
		if repeated {
			l.Line.Dashes = []vg.Length{1.5, 2}
		}
		styles[i] = l
	}
	return styles
}
