package projected

// The four figures of a projection: the cost or saving of each step of the headline, the stacked
// budget, the tornado plot, and predicted against published throughput.

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/bench/projection"
	"spmoe/launcher/report/figure"
)

func (r Report) figures() (all []figure.Figure) {
	if len(r.Headlines) > 0 {
		all = append(all, waterfall(r.Headlines[0]), stacked(r.Headlines))
	}
	if len(r.Swings) > 0 && len(r.Headlines) > 0 {
		all = append(all, tornado(r.Swings, r.Headlines[0].Budgets[1].Tokens))
	}
	if len(r.Groups) > 0 {
		all = append(all, scatter(r.Groups))
	}
	return all
}

// box is a rectangle in data coordinates with a label.
type box struct {
	x0, x1, y0, y1 float64
	shade          figure.Shade
	alpha          uint8
	label          string
	// side of the label: XRight is left of the box, XLeft right of it, XCenter above
	side text.XAlignment
}

// Plot implements [plot.Plotter].
func (b box) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	x0, x1, y0, y1 := x(min(b.x0, b.x1)), x(max(b.x0, b.x1)), y(min(b.y0, b.y1)), y(max(b.y0, b.y1))
	if b.shade.Variable != "" {
		c.FillPolygon(b.shade.Alpha(b.alpha), []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	}
	if b.label == "" {
		return
	}
	style := figure.Aligned(figure.TextStyle(figure.SmallText, figure.Ink), b.side, text.YCenter)
	at := vg.Point{X: (x0 + x1) / 2, Y: (y0 + y1) / 2}
	switch b.side {
	case text.XLeft:
		at.X = x1 + 4
	case text.XRight:
		at.X = x0 - 4
	default:
		style.YAlign = text.YBottom
		at.Y = y1 + 3
	}
	c.FillText(style, at, b.label)
}

// nominal labels whole numbers.
func nominal(labels []string) plot.Ticker {
	var ticks []plot.Tick
	for i, l := range labels {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: l})
	}
	return plot.ConstantTicks(ticks)
}

// step is one bar of the waterfall: a change of the milliseconds per token.
type step struct {
	name  string
	delta float64
}

// steps returns the changes from one budget to the next by term. It combines changes that are too
// small to see.
func steps(from, to projection.Budget) (all []step) {
	rest := to.MS - from.MS
	for _, s := range projection.Symbols() {
		d := to.Term(s).MS - from.Term(s).MS
		if math.Abs(d) < 0.004 {
			continue
		}
		all = append(all, step{s.About(), d})
		rest -= d
	}
	if math.Abs(rest) > 1e-4 {
		all = append(all, step{"rest", rest})
	}
	return all
}

func waterfall(h projection.Headline) figure.Figure {
	panel := figure.NewPanel("", "", "GPU-ms per token")
	labels, at := []string{}, 0
	add := func(label string, low, high float64, shade figure.Shade, above string) {
		panel.Add(box{float64(at) - 0.38, float64(at) + 0.38, low, high, shade, 225, above, text.XCenter})
		labels = append(labels, label)
		at++
	}
	level := h.Budgets[0].MS
	add("BF16", 0, level, figure.Palette[0], fmt.Sprintf("%.0f tok/s", h.Budgets[0].Tokens))
	for i, b := range h.Budgets[1:] {
		for _, s := range steps(h.Budgets[i], b) {
			shade := figure.Palette[3]
			if s.delta > 0 {
				shade = figure.Palette[2]
			}
			add(s.name, level, level+s.delta, shade, fmt.Sprintf("%+.3f", s.delta))
			level += s.delta
		}
		add([]string{"DeepEP", "+ MXFP8"}[i], 0, b.MS, figure.Palette[1], fmt.Sprintf("%.0f tok/s", b.Tokens))
	}
	panel.X.Min, panel.X.Max, panel.Y.Min, panel.Y.Max = -0.6, float64(at)-0.4, 0, 1.12*max(h.Budgets[0].MS, level)
	panel.X.Tick.Marker = nominal(labels)
	panel.X.Tick.Label = figure.Aligned(figure.TextStyle(figure.SmallText, figure.Muted), text.XRight, text.YCenter)
	panel.X.Tick.Label.Rotation = math.Pi / 5
	return figure.Figure{
		Name: "waterfall", Title: "651 to 859 to 918 tokens/s, as run", Panels: [][]*plot.Plot{{panel}}, Height: 330,
		Caption: fmt.Sprintf("Cost (orange) or saving (green) of each change in scenario %s: %s. Only the first bar is fitted.", h.Scenario.Name, h.Scenario.About),
	}
}

func stacked(all []projection.Headline) figure.Figure {
	panel := figure.NewPanel("", "", "GPU-ms per token")
	var labels []string
	var legend []figure.SeriesStyle
	places := map[projection.Symbol]int{}
	shadeOf := func(t projection.Term) (figure.Shade, uint8) {
		n, ok := places[t.Symbol]
		if !ok {
			n = len(places)
			places[t.Symbol] = n
		}
		shade, alpha := figure.Palette[n%len(figure.Palette)], uint8(235)
		if n >= len(figure.Palette) { // the same colors again, lighter
			alpha = 130
		}
		if !ok {
			legend = append(legend, figure.SeriesStyle{
				Name: fmt.Sprintf("%s %s (%s)", t.Symbol, t.Symbol.About(), t.Kind), Shade: shade, Line: draw.LineStyle{Color: shade.Alpha(alpha), Width: vg.Points(7)},
			})
		}
		return shade, alpha
	}
	highest := 0.0
	for _, h := range all {
		for i, b := range h.Budgets {
			at, level := float64(len(labels)), 0.0
			for _, t := range b.Terms {
				shade, alpha := shadeOf(t)
				panel.Add(box{x0: at - 0.4, x1: at + 0.4, y0: level, y1: level + t.MS, shade: shade, alpha: alpha})
				level += t.MS
			}
			panel.Add(box{x0: at, x1: at, y0: level, y1: level, label: fmt.Sprintf("%.0f", b.Tokens), side: text.XCenter})
			labels = append(labels, []string{"BF16", "DeepEP", "MXFP8"}[i]+"\n"+h.Scenario.Name)
			highest = max(highest, level)
		}
	}
	panel.X.Min, panel.X.Max, panel.Y.Min, panel.Y.Max = -0.6, float64(len(labels))-0.4, 0, 1.12*highest
	panel.X.Tick.Marker = nominal(labels)
	return figure.Figure{
		Name: "budget", Title: "Time per token, by term and its basis", Legend: legend, Panels: [][]*plot.Plot{{panel}}, Height: 380,
		Caption: "Bars add up to the time per token; the number above is tokens/s per GPU. The residual is fitted to the first bar of each scenario and kept for the others.",
	}
}

func tornado(swings []projection.Swing, center float64) figure.Figure {
	const most = 12
	swings = swings[:min(len(swings), most)]
	panel := figure.NewPanel("", "tokens/s of one GPU, DeepEP as run", "")
	var labels []string
	x := figure.NewExtent()
	for i := range swings {
		s := swings[len(swings)-1-i]
		labels = append(labels, s.Name)
		for _, end := range []struct {
			value, tokens float64
			shade         figure.Shade
		}{{s.Low, s.AtLow, figure.Palette[2]}, {s.High, s.AtHigh, figure.Palette[1]}} {
			side := text.XLeft
			if end.tokens < center {
				side = text.XRight
			}
			panel.Add(box{center, end.tokens, float64(i) - 0.36, float64(i) + 0.36, end.shade, 220, fmt.Sprintf("%.3g", end.value), side})
			x.Add(end.tokens)
		}
	}
	x.Add(center)
	x.Padded(0.12).Apply(&panel.X)
	panel.Y.Min, panel.Y.Max = -0.6, float64(len(swings))-0.4
	panel.Y.Tick.Marker = nominal(labels)
	return figure.Figure{
		Name: "tornado", Title: "One parameter at a time, from the low to the high end of its prior", Panels: [][]*plot.Plot{{panel}}, Height: vg.Length(90 + 22*len(swings)),
		Caption: "Orange is the low end and blue the high end, each with the value of the parameter. The residual is fitted to 651 again each time.",
	}
}

func scatter(groups []projection.Group) figure.Figure {
	panel := figure.NewPanel("", "published tokens/s of one GPU (log)", "predicted (log)")
	extent := figure.NewExtent()
	var legend []figure.SeriesStyle
	for i, g := range groups {
		shade := figure.Palette[1+i%(len(figure.Palette)-1)]
		var x, y []float64
		for _, p := range g.Rows {
			x, y = append(x, p.Published), append(y, p.Predicted)
			extent.Add(p.Published, p.Predicted)
			panel.Add(figure.Path{X: []float64{p.Published, p.Published}, Y: []float64{p.Interval[0], p.Interval[1]}, Style: draw.LineStyle{Color: shade.Alpha(90), Width: vg.Points(0.8)}})
		}
		panel.Add(figure.Dots{X: x, Y: y, Color: shade.Color(), Radius: 2.6})
		legend = append(legend, figure.SeriesStyle{Name: fmt.Sprintf("%s: mean absolute error %.1f %%", g.Name, 100*g.MAPE), Shade: shade, Line: draw.LineStyle{Color: shade.Color(), Width: vg.Points(4)}})
	}
	low, high := 0.7*extent.Min, 1.4*extent.Max
	diagonal := []float64{low, high}
	panel.Add(figure.Band{X: diagonal, Low: []float64{0.85 * low, 0.85 * high}, High: []float64{1.15 * low, 1.15 * high}, Fill: figure.Palette[0].Alpha(40)})
	panel.Add(figure.Path{X: diagonal, Y: diagonal, Style: draw.LineStyle{Color: figure.Muted.Color(), Width: vg.Points(0.8)}})
	panel.Add(figure.Dots{X: []float64{projection.PublishedBF16}, Y: []float64{projection.PublishedBF16}, Color: figure.Ink.Color(), Radius: 3.4, Ring: true})
	panel.X.Scale, panel.Y.Scale = plot.LogScale{}, plot.LogScale{}
	panel.X.Tick.Marker, panel.Y.Tick.Marker = plot.TickerFunc(thousands), plot.TickerFunc(thousands)
	panel.X.Min, panel.X.Max, panel.Y.Min, panel.Y.Max = low, high, low, high
	return figure.Figure{
		Name: "validation", Title: "Predicted against published throughput, for rows that nothing was fitted to", Legend: legend, Panels: [][]*plot.Plot{{panel}}, Height: 430,
		Caption: "The band is ±15 %, thin lines are 80 % intervals. The ring is the only row that the model was calibrated on.",
	}
}

// thousands returns logarithmic ticks with whole numbers.
func thousands(low, high float64) []plot.Tick {
	ticks := figure.Logarithmic(low, high)
	for i := range ticks {
		ticks[i].Label = fmt.Sprintf("%.0f", ticks[i].Value)
	}
	return ticks
}

// WriteSweep draws the layouts of a sweep into the folder's plots: throughput over memory, with the
// Pareto-optimal layouts marked.
func WriteSweep(dir string, points []projection.Point) error {
	if len(points) == 0 {
		return nil
	}
	panel := figure.NewPanel("", "GB of the fullest GPU", "tokens/s of one GPU")
	var all, best [2][]float64
	x, y := figure.NewExtent(), figure.NewExtent()
	for _, p := range points {
		all[0], all[1] = append(all[0], p.Memory), append(all[1], p.Tokens)
		if p.Best {
			best[0], best[1] = append(best[0], p.Memory), append(best[1], p.Tokens)
		}
		x.Add(p.Memory)
		y.Add(0, p.Tokens)
	}
	x.Padded(0.04).Apply(&panel.X)
	y.Padded(0.04).Apply(&panel.Y)
	panel.Add(figure.Dots{X: all[0], Y: all[1], Color: figure.Palette[0].Alpha(90), Radius: 1.4})
	panel.Add(figure.Path{X: best[0], Y: best[1], Style: draw.LineStyle{Color: figure.Palette[1].Color(), Width: vg.Points(1.4)}})
	panel.Add(figure.Dots{X: best[0], Y: best[1], Color: figure.Palette[1].Color(), Radius: 2.6})
	f := figure.Figure{Name: "sweep", Title: "Layouts that fit: throughput over memory", Panels: [][]*plot.Plot{{panel}}, Height: 330}
	return figure.WritePlots(dir, []figure.Figure{f}, []string{f.Name})
}
