package report

// The forest plot: every arm's difference to the baseline, with its confidence interval and the
// margin of the verdict.

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// forestRow is one arm's line in one panel. All differences are in percent.
type forestRow struct {
	style  figure.SeriesStyle
	seeds  []float64
	mean   float64
	ci     [2]float64
	tested bool // ci is known
	center bool // there is a mean to show
	label  [2]string
}

// forestText is the fraction of a panel's width, on its right, that the numbers take.
const forestText = 0.38

func (p painter) forest() (figure.Figure, bool) {
	if len(p.Arms) < 2 {
		return figure.Figure{}, false
	}
	train := p.forestRows(func(a convergence.Arm) *convergence.Difference { return a.Train }, func(r convergence.Run) record.Number { return r.Train })
	heldOut := p.forestRows(func(a convergence.Arm) *convergence.Difference { return a.HeldOut }, func(r convergence.Run) record.Number { return r.HeldOut })
	if !slices.ContainsFunc(append(slices.Clone(train), heldOut...), func(r forestRow) bool { return r.center }) {
		return figure.Figure{}, false
	}
	reach := p.axisRange(append(slices.Clone(train), heldOut...))
	return figure.Figure{
		Name: "forest", Title: fmt.Sprintf("Final loss against %s (margin ±%s)", p.styles[0].Name, figure.Percentage(p.Margin, 2)),
		Panels:  [][]*plot.Plot{{p.forestPanel("training loss", train, reach), p.forestPanel("validation loss", heldOut, reach)}},
		SharedY: true,
		Height:  vg.Length(92 + 38*len(p.Arms)),
		Caption: p.forestCaption(train),
	}, true
}

func (p painter) forestCaption(rows []forestRow) string {
	limit := "±" + figure.Percentage(p.Margin, 2)
	if !slices.ContainsFunc(rows, func(r forestRow) bool { return r.tested }) {
		return fmt.Sprintf("Rings are differences of one seed; the green zone is the margin of %s. More seeds would give intervals.", limit)
	}
	caption := fmt.Sprintf("Bars inside the green zone show equivalence. Dots are mean differences, bars their 95%% confidence intervals, rings single seeds; the zone is the margin of %s.", limit)
	if len(rows[0].seeds) > 0 {
		caption += fmt.Sprintf(" In the first row, for scale, rings are the seeds of %s around their own mean.", p.styles[0].Name)
	}
	return caption
}

// forestRows returns one row per arm. The baseline's row shows the scatter of its own seeds.
func (p painter) forestRows(difference func(convergence.Arm) *convergence.Difference, end func(convergence.Run) record.Number) (rows []forestRow) {
	for i, arm := range p.Arms {
		row := forestRow{style: p.styles[i]}
		d := difference(arm)
		switch {
		case i == 0:
			row.seeds, row.label = scatter(arm, end)
		case d == nil:
			row.label = [2]string{"no finite", "difference"}
		default:
			for _, pair := range d.Pairs {
				row.seeds = append(row.seeds, 100*pair)
			}
			row.mean, row.center, row.tested = 100*d.Mean, true, tested(d)
			row.ci = [2]float64{100 * d.CI95[0], 100 * d.CI95[1]}
			row.label = [2]string{change(d.Mean), "one seed"}
			if row.tested {
				row.label[1] = interval(d.CI95)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// scatter returns the differences of an arm's finite final losses to their mean, in percent.
func scatter(arm convergence.Arm, end func(convergence.Run) record.Number) (around []float64, label [2]string) {
	var ends []float64
	sum := 0.0
	for _, run := range arm.Runs {
		if v := float64(end(run)); figure.Finite(v) {
			ends = append(ends, v)
			sum += v
		}
	}
	if len(ends) < 2 {
		return nil, label
	}
	mean := sum / float64(len(ends))
	for _, v := range ends {
		around = append(around, 100*(v/mean-1))
	}
	return around, [2]string{"its own", "seeds"}
}

// axisRange is the range of differences that panels show on both sides, in percent. It covers all
// of them, up to a limit, because a diverged run must not hide the others.
func (p painter) axisRange(rows []forestRow) float64 {
	percent := 100 * p.Margin
	reach := 1.3 * percent
	for _, row := range rows {
		for _, v := range append([]float64{row.mean, row.ci[0], row.ci[1]}, row.seeds...) {
			if figure.Finite(v) {
				reach = max(reach, min(1.1*math.Abs(v), 6*percent))
			}
		}
	}
	if reach == 0 {
		return 1
	}
	return reach
}

func (p painter) forestPanel(title string, rows []forestRow, reach float64) *plot.Plot {
	panel := figure.NewPanel("", "", "")
	figure.AddHeading(panel, title+", difference in %", (1-forestText)/2)
	figure.Extent{Min: -reach, Max: reach * (1 + forestText) / (1 - forestText)}.Apply(&panel.X)
	figure.Extent{Min: -0.62, Max: float64(len(rows)) - 0.38}.Apply(&panel.Y)
	panel.X.Width = 0
	panel.X.Tick.Marker = plot.TickerFunc(func(float64, float64) []plot.Tick { return figure.Linear(6, figure.Signed).Ticks(-reach, reach) })
	panel.Y.Tick.Label = figure.Aligned(figure.TextStyle(10, figure.Ink), text.XRight, figure.TickCenter)
	var names plot.ConstantTicks
	for i, row := range rows {
		names = append(names, plot.Tick{Value: float64(len(rows) - 1 - i), Label: row.style.Name})
	}
	panel.Y.Tick.Marker = names
	panel.Add(figure.Span{Low: -100 * p.Margin, High: 100 * p.Margin, Vertical: true})
	for i, row := range rows {
		panel.Add(forestMark{row, float64(len(rows) - 1 - i)})
	}
	return panel
}

// forestMark draws a row at a position of the y axis.
type forestMark struct {
	forestRow
	y float64
}

// Plot implements plot.Plotter.
func (m forestMark) Plot(c draw.Canvas, p *plot.Plot) {
	whole := c
	toX, toY := p.Transforms(&whole)
	y, right := toY(m.y), c.X(1-forestText)
	c.FillText(figure.Aligned(figure.TextStyle(figure.SmallText, figure.Ink), text.XLeft, text.YBottom), vg.Point{X: right + 4, Y: y + 2}, m.label[0])
	c.FillText(figure.Aligned(figure.TextStyle(figure.SmallText, figure.Muted), text.XLeft, text.YTop), vg.Point{X: right + 4, Y: y - 1}, m.label[1])
	c.Max.X = right // marks end where the numbers begin

	rings := draw.GlyphStyle{Color: m.style.Shade.Color(), Radius: 2.6, Shape: draw.RingGlyph{}}
	if m.center && !m.tested { // there is one seed, and the mean is its value
		rings.Radius = 0
	}
	for _, seed := range m.seeds {
		if at := (vg.Point{X: toX(seed), Y: y - 7}); c.Contains(at) && rings.Radius > 0 {
			c.DrawGlyph(rings, at)
		}
	}
	if !m.center {
		return
	}
	bar := draw.LineStyle{Color: m.style.Shade.Color(), Width: vg.Points(2)}
	if m.tested {
		c.StrokeLines(bar, c.ClipLinesX([]vg.Point{{X: toX(m.ci[0]), Y: y}, {X: toX(m.ci[1]), Y: y}})...)
		for _, end := range m.ci {
			if x := toX(end); c.ContainsX(x) {
				c.StrokeLine2(bar, x, y-3, x, y+3)
			}
		}
	}
	dot := draw.GlyphStyle{Color: bar.Color, Radius: 3.6, Shape: draw.CircleGlyph{}}
	if !m.tested {
		dot.Shape = draw.RingGlyph{}
	}
	if at := (vg.Point{X: toX(m.mean), Y: y}); c.Contains(at) {
		c.DrawGlyph(dot, at)
	} else {
		m.arrow(c, y)
	}
}

// arrow points towards a mean outside of the panel.
func (m forestMark) arrow(c draw.Canvas, y vg.Length) {
	tip, side := c.Max.X, vg.Length(-1)
	if m.mean < 0 {
		tip, side = c.Min.X, 1
	}
	c.FillPolygon(m.style.Shade.Color(), []vg.Point{{X: tip, Y: y}, {X: tip + side*7, Y: y + 4}, {X: tip + side*7, Y: y - 4}})
}
