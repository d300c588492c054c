package runs

// The curves of several runs in one panel.

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/report/overview"
)

// curvePoints is the maximum number of points per curve.
const curvePoints = 300

// styles returns a color and a kind of line for each run, by its name.
func styles(names []string) (list []figure.SeriesStyle) {
	dashes := [][]vg.Length{nil, {6, 3}, {1.5, 2}}
	for i, name := range names {
		shade := figure.Palette[(i+1)%len(figure.Palette)]
		line := draw.LineStyle{Color: shade.Color(), Width: vg.Points(1.6), Dashes: dashes[i/len(figure.Palette)%len(dashes)]}
		list = append(list, figure.SeriesStyle{Name: name, Shade: shade, Line: line})
	}
	return list
}

// axis is what curves are drawn over.
type axis struct {
	name string
	at   func(r overview.Run, s figure.Series) []float64 // the places of the values of a series
}

// stepsOrTokens returns the axis of steps if the steps of all runs have the same
// number of tokens, or else that of tokens.
func stepsOrTokens(list []overview.Run) axis {
	for _, r := range list {
		if r.TokensPerStep() != list[0].TokensPerStep() {
			return axis{"tokens (millions)", func(r overview.Run, s figure.Series) []float64 { return scaled(s.Steps, r.TokensPerStep()/1e6) }}
		}
	}
	return axis{"step", func(_ overview.Run, s figure.Series) []float64 { return scaled(s.Steps, 1) }}
}

func scaled(steps []int, by float64) (x []float64) {
	for _, step := range steps {
		x = append(x, float64(step)*by)
	}
	return x
}

// minutes is the axis of the time in which a run has trained, without evaluations and checkpoints.
var minutes = axis{"minutes of training", func(r overview.Run, s figure.Series) (x []float64) {
	spent, next := 0.0, 0
	for _, step := range s.Steps {
		for ; next < len(r.Log.Steps) && r.Log.Steps[next].Step <= step; next++ {
			spent += r.Log.Steps[next].Seconds / 60
		}
		x = append(x, spent)
	}
	return x
}}

// quantity is a quantity of each run over an axis.
type quantity struct {
	name, title, unit, caption string

	of    func(overview.Run) figure.Series
	over  axis
	dots  bool // with a mark at each value
	whole bool // the y axis begins at 0, and there are no other views
}

func quantities(list []overview.Run) (all []quantity) {
	over := stepsOrTokens(list)
	all = []quantity{
		{name: "validation", title: "Validation loss", unit: "loss (nats/token)", of: func(r overview.Run) figure.Series { return figure.HeldOut(&r.Log) }, over: over, dots: true,
			caption: "Losses of runs with different tokenizers or validation texts are not comparable."},
		{name: "loss", title: "Training loss", unit: "loss (nats/token)", of: trainingLoss, over: over,
			caption: "Smoothed over a sixtieth of each run."},
		{name: "loss-time", title: "Training loss over time", unit: "loss (nats/token)", of: trainingLoss, over: minutes,
			caption: "Over the time of the steps, without evaluations and checkpoints. Runs that shared a machine were slower than alone."},
		{name: "speed", title: "Throughput", unit: "tokens/s", of: func(r overview.Run) figure.Series { return smooth(r.Speeds()) }, over: over, whole: true,
			caption: "Steps only, without evaluations and checkpoints."},
	}
	for _, q := range record.Quantities {
		if q.Compare != "" {
			all = append(all, quantity{name: q.Figure, title: q.Title, unit: q.Unit, over: over, caption: "Smoothed over a sixtieth of each run.",
				of: func(r overview.Run) figure.Series { return smooth(figure.Steps(&r.Log, q.JSON)) }})
		}
	}
	return all
}

func trainingLoss(r overview.Run) figure.Series { return smooth(figure.Steps(&r.Log, "loss")) }

// smooth averages a series over a sixtieth of its length.
func smooth(s figure.Series) figure.Series { return s.Centred(1 + len(s.Steps)/60) }

// figures returns the figures that the runs have data for.
func figures(list []overview.Run, looks []figure.SeriesStyle) (all []figure.Figure) {
	for _, q := range quantities(list) {
		if f, ok := q.figure(list, looks); ok {
			all = append(all, f)
		}
	}
	return all
}

func (q quantity) figure(list []overview.Run, looks []figure.SeriesStyle) (f figure.Figure, ok bool) {
	var curves []figure.Curve
	var hover figure.Hover
	f = figure.Figure{Name: q.name, Title: q.title, Caption: q.caption, Height: 330}
	for i, r := range list {
		s := q.of(r)
		c := figure.Curve{Steps: q.over.at(r, s), Mean: s.Values, Low: s.Values, High: s.Values}
		if c.Empty() {
			continue
		}
		c = c.Thin(curvePoints)
		curves = append(curves, c)
		f.Legend = append(f.Legend, looks[i])
		hover = append(hover, figure.NamedCurve{Name: looks[i].Name, X: c.Steps, Y: c.Mean, Shade: looks[i].Shade})
	}
	if len(curves) == 0 {
		return f, false
	}
	panel := func() *plot.Plot {
		p := figure.NewPanel("", q.over.name, q.unit)
		for i, c := range curves {
			p.Add(figure.Path{X: c.Steps, Y: c.Mean, Style: f.Legend[i].Line})
			if q.dots {
				p.Add(figure.Dots{X: c.Steps, Y: c.Mean, Color: f.Legend[i].Shade.Color(), Radius: 2.2})
			}
		}
		p.Add(hover)
		q.extents(p, curves)
		return p
	}
	f.Panels = [][]*plot.Plot{{panel()}}
	if !q.whole {
		f.AddViews(panel, curves...)
	}
	return f, true
}

// extents sets the axes of a panel to the range of its curves.
func (q quantity) extents(p *plot.Plot, curves []figure.Curve) {
	x, y := figure.NewExtent(), figure.NewExtent()
	x.Add(0)
	for _, c := range curves {
		x.Add(c.Steps...)
		y.Add(c.Mean...)
	}
	if x.Max == x.Min {
		x.Max++
	}
	x.Apply(&p.X)
	if y = y.Padded(0.03); q.whole {
		y.Min = 0
	}
	y.Apply(&p.Y)
}

// last returns the last finite value of a series, and the least one; NaN if there is none.
func last(s figure.Series) (end, least float64) {
	values := s.Finite()
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	least = values[0]
	for _, v := range values {
		least = min(least, v)
	}
	return values[len(values)-1], least
}

// duration returns the time of a run's steps.
func duration(r overview.Run) string {
	sum := 0.0
	for _, s := range r.Log.Steps {
		sum += s.Seconds
	}
	return report.Clock(time.Duration(min(sum, math.MaxInt64/1e9-1) * float64(time.Second)))
}

// speed returns the median tokens/s of a run and its median MFU.
func speed(r overview.Run) (tokens, mfu string) {
	tokens, mfu = figure.Missing, figure.Missing
	if v := r.Speeds().Finite(); len(v) > 0 {
		tokens = report.Thousands(figure.Median(v))
	}
	if v := r.Utilization().Finite(); len(v) > 0 {
		mfu = fmt.Sprintf("%.1f%%", figure.Median(v))
	}
	return tokens, mfu
}
