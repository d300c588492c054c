package overview

// Figures of quantities over the steps of a run.

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
)

// curvePoints is the maximum number of points per curve.
const curvePoints = 300

// figures returns the figures that the run has data for.
func (r Run) figures() (list []figure.Figure) {
	for _, make := range []func() (figure.Figure, bool){r.loss, r.gradientNorm, r.tasks, r.speed, r.phases, r.loads, r.biases} {
		if f, ok := make(); ok {
			list = append(list, f)
		}
	}
	for _, q := range record.Quantities {
		if q.Caption == "" || q.Section == experts && len(r.Log.Loads) == 0 {
			continue
		}
		c := r.smooth(figure.Steps(&r.Log, q.JSON))
		if c.Empty() {
			continue
		}
		panel := figure.NewPanel("", "step", q.Unit)
		y := spanning(0.05, c)
		figure.Extent{Min: min(q.Floor, y.Min), Max: max(1.1*q.Floor, y.Max)}.Apply(&panel.Y)
		r.single(panel, c, q.Unit, figure.Palette[1])
		list = append(list, figure.Figure{Name: q.Figure, Title: q.Title, Panels: [][]*plot.Plot{{panel}}, Height: 230, Caption: q.Caption})
	}
	return list
}

// window returns the number of steps to average in curves that show a trend.
func (r Run) window() int { return 1 + len(r.Log.Steps)/60 }

// smooth averages over the window.
func (r Run) smooth(s figure.Series) figure.Curve {
	return figure.Over([]figure.Series{s.Centred(r.window())}).Thin(curvePoints)
}

func styleOf(name string, shade figure.Shade) figure.SeriesStyle {
	return figure.SeriesStyle{Name: name, Shade: shade, Line: draw.LineStyle{Color: shade.Color(), Width: vg.Points(1.6)}}
}

// line adds a curve to a panel and widens its axis of steps.
func (r Run) line(to *plot.Plot, c figure.Curve, style figure.SeriesStyle) {
	to.Add(figure.Path{X: c.Steps, Y: c.Mean, Style: style.Line})
	r.steps(to)
}

// single adds the only curve of a panel, with its values under the pointer.
func (r Run) single(to *plot.Plot, c figure.Curve, name string, shade figure.Shade) {
	r.line(to, c, styleOf("", shade))
	to.Add(figure.Hover{{Name: name, X: c.Steps, Y: c.Mean, Shade: shade}})
}

// steps sets the common axis of steps.
func (r Run) steps(of *plot.Plot) {
	x := figure.NewExtent()
	x.Add(0)
	if n := len(r.Log.Steps); n > 0 {
		x.Add(float64(r.Log.Steps[0].Step), float64(r.Log.Steps[n-1].Step))
	}
	if x.Max == x.Min {
		x.Add(x.Max + 1)
	}
	x.Apply(&of.X)
}

// spanning returns the range of the curves.
func spanning(part float64, curves ...figure.Curve) figure.Extent {
	y := figure.NewExtent()
	for _, c := range curves {
		y.Add(c.Mean...)
	}
	return y.Padded(part)
}

func (r Run) loss() (figure.Figure, bool) {
	raw := figure.Over([]figure.Series{figure.Steps(&r.Log, "loss")}).Thin(2 * curvePoints)
	train, heldOut := r.smooth(figure.Steps(&r.Log, "loss")), figure.Over([]figure.Series{figure.HeldOut(&r.Log)})
	if train.Empty() && heldOut.Empty() {
		return figure.Figure{}, false
	}
	styles := []figure.SeriesStyle{styleOf("training text", figure.Palette[1]), styleOf("validation text", figure.Palette[2])}
	styles[1].Dots = heldOut.Sparse()
	caption := ""
	if r.window() > 1 {
		caption = fmt.Sprintf("The training loss is smoothed over %s; the thin line is the loss of single steps. ", report.Plural(r.window(), "step"))
	}
	panel := func() *plot.Plot {
		panel := figure.NewPanel("", "step", "loss (nats/token)")
		if r.window() > 1 {
			thin := draw.LineStyle{Color: figure.Palette[1].Alpha(70), Width: vg.Points(0.7)}
			panel.Add(figure.Path{X: raw.Steps, Y: raw.Mean, Style: thin})
		}
		r.line(panel, train, styles[0])
		if !styles[1].Dots {
			r.line(panel, heldOut, styles[1])
		}
		panel.Add(figure.Dots{X: heldOut.Steps, Y: heldOut.Mean, Color: figure.Palette[2].Color(), Radius: 2.2})
		panel.Add(figure.Hover{
			{Name: styles[0].Name, X: train.Steps, Y: train.Mean, Shade: styles[0].Shade},
			{Name: styles[1].Name, X: heldOut.Steps, Y: heldOut.Mean, Shade: styles[1].Shade},
		})
		spanning(0.03, train, heldOut).Apply(&panel.Y)
		return panel
	}
	f := figure.Figure{
		Name: "loss", Title: "Loss", Legend: styles, Panels: [][]*plot.Plot{{panel()}}, Height: 300,
		Caption: caption + "A growing gap between training and validation loss means that the run memorizes its text.",
	}
	f.AddViews(panel, train, heldOut)
	return f, true
}

func (r Run) gradientNorm() (figure.Figure, bool) {
	c := r.smooth(figure.Steps(&r.Log, "grad_norm"))
	y := figure.NewExtent()
	for i, v := range c.Mean {
		if v <= 0 { // not on a logarithmic axis
			c.Mean[i] = math.NaN()
		}
	}
	if y.Add(c.Mean...); y.Empty() {
		return figure.Figure{}, false
	}
	norm := figure.NewPanel("gradient norm (log)", "step", "")
	norm.Y.Scale, norm.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(figure.Logarithmic)
	figure.Extent{Min: y.Min / 1.1, Max: y.Max * 1.1}.Apply(&norm.Y)
	norm.X.Tick.Marker = figure.Whole(3)
	r.single(norm, c, "gradient norm", figure.Palette[1])
	rate := figure.NewPanel("learning rate", "step", "")
	rates := figure.Over([]figure.Series{figure.Steps(&r.Log, "lr")}).Thin(curvePoints)
	e := spanning(0.05, rates)
	figure.Extent{Min: min(0, e.Min), Max: e.Max}.Apply(&rate.Y)
	rate.X.Tick.Marker = figure.Whole(3)
	r.single(rate, rates, "learning rate", figure.Palette[3])
	return figure.Figure{
		Name: "grad-norm", Title: "Gradient norm before clipping, and learning rate", Panels: [][]*plot.Plot{{norm, rate}}, Height: 250,
		Caption: "A norm that keeps rising, or spikes, shows an instability before the loss does.",
	}, true
}

// startOf returns the start of the process that ran a step.
func (r Run) startOf(step int) (s record.Start) {
	for _, start := range r.Log.Starts {
		if start.Step < step {
			s = start
		}
	}
	return s
}

// Speeds returns the tokens/s of each step; NaN if the record lacks times.
func (r Run) Speeds() figure.Series { return figure.Steps(&r.Log, "tps") }

// Utilization returns the MFU of each step in percent; NaN if the record lacks times.
func (r Run) Utilization() figure.Series { return figure.Steps(&r.Log, "mfu").Scaled(100) }

func (r Run) speed() (figure.Figure, bool) {
	tokens, share := r.smooth(r.Speeds()), r.smooth(r.Utilization())
	if tokens.Empty() {
		return figure.Figure{}, false
	}
	var row []*plot.Plot
	for i, c := range []figure.Curve{tokens, share} {
		if c.Empty() {
			continue
		}
		name := []string{"tokens/s", "MFU (%)"}[i]
		panel := figure.NewPanel(name, "step", "")
		figure.Extent{Max: spanning(0.08, c).Max}.Apply(&panel.Y)
		panel.X.Tick.Marker = figure.Whole(3)
		r.single(panel, c, name, figure.Palette[1+2*i])
		row = append(row, panel)
	}
	return figure.Figure{
		Name: "speed", Title: "Throughput", Panels: [][]*plot.Plot{row}, Height: 240,
		Caption: "Steps only, without evaluations and checkpoints. MFU is the model’s FLOP/s as a share of the peak measured at the start of the run.",
	}, true
}

// groups of kinds of work, from bottom to top. Kinds that are not named belong to the last.
var groups = []struct {
	name  string
	is    func(family string) bool
	shade int
}{
	{"matrix products", isProduct, 1},
	{"attention", one("attention"), 3},
	{"row operations, router, loss", one("row operations", "router", "loss"), 6},
	{"quantization", one("quantize"), 4},
	{"exchange, collectives", one("exchange", "collectives"), 5},
	{"waiting", one("waiting", "messages"), 2},
	{"optimizer and the rest", func(string) bool { return true }, 0},
}

func one(of ...string) func(string) bool {
	return func(family string) bool { return slices.Contains(of, family) }
}

func isProduct(family string) bool {
	for _, format := range []string{"fp32 ", "bf16 ", "mx "} {
		if len(family) > len(format) && family[:len(format)] == format {
			return true
		}
	}
	return false
}

// phases stacks the time of a step by kind of work.
func (r Run) phases() (figure.Figure, bool) {
	list := thin(r.Log.Phases, curvePoints)
	if len(list) < 2 {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "time per step (ms)")
	steps, below := make([]float64, len(list)), make([]float64, len(list))
	sums := make([][]float64, len(groups))
	for g := range groups {
		sums[g] = make([]float64, len(list))
	}
	for i, p := range list {
		steps[i] = float64(p.Step)
		for family, seconds := range p.Families {
			g := slices.IndexFunc(groups, func(g struct {
				name  string
				is    func(family string) bool
				shade int
			}) bool {
				return g.is(family)
			})
			sums[g][i] += 1e3 * max(seconds, 0)
		}
	}
	y := figure.NewExtent()
	y.Add(0)
	var styles []figure.SeriesStyle
	var hover figure.Hover
	for g, sum := range sums {
		if slices.Max(sum) == 0 {
			continue
		}
		above := make([]float64, len(list))
		for i := range above {
			above[i] = below[i] + sum[i]
		}
		shade := figure.Palette[groups[g].shade]
		panel.Add(figure.Band{X: steps, Low: below, High: above, Fill: shade.Alpha(215)})
		style := styleOf(groups[g].name, shade)
		style.Line.Width = 6
		styles = append(styles, style)
		hover = append(hover, figure.NamedCurve{Name: style.Name + " (ms)", X: steps, Y: sum, Shade: shade})
		y.Add(above...)
		below = above
	}
	y.Max *= 1.03
	if !(y.Max > 0) || math.IsInf(y.Max, 0) {
		return figure.Figure{}, false
	}
	y.Apply(&panel.Y)
	r.steps(panel)
	panel.Add(hover)
	return figure.Figure{
		Name: "phases", Title: "Where the time of a step goes", Legend: styles, Panels: [][]*plot.Plot{{panel}}, Height: 300,
		Caption: "Means over ranks and over the steps between two points. Waiting is waiting for other ranks: much of it means that ranks have unequal work or share cores.",
	}, true
}

// thin keeps at most about n elements, including the last.
func thin[T any](list []T, n int) (some []T) {
	every := (len(list) + n - 1) / n
	for i, x := range list {
		if (len(list)-1-i)%every == 0 {
			some = append(some, x)
		}
	}
	return some
}
