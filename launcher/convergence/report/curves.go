package report

// Figures of quantities over training steps: losses, their differences, gradient norm.

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	console "spmoe/launcher/report"
	"spmoe/launcher/report/figure"
)

// curvePoints is the largest number of points that are drawn of a curve.
const curvePoints = 300

// painter draws one comparison.
type painter struct {
	convergence.Result
	styles []figure.SeriesStyle // by arm
}

// armCurve is a curve of one arm.
type armCurve struct {
	arm int // its index
	figure.Curve
}

// figures returns the figures that the comparison has data for.
func (p painter) figures() (list []figure.Figure) {
	for _, make := range []func() (figure.Figure, bool){
		p.forest, p.loss, p.difference, p.heldOut, p.gradientNorm, p.imbalance, p.agreement, p.sqnr, p.sqnrByLinear, p.lost,
	} {
		if f, ok := make(); ok {
			list = append(list, f)
		}
	}
	return list
}

// figureNames returns the names of all figures, drawn or not.
func figureNames() []string {
	return []string{"forest", "loss", "difference", "held-out", "grad-norm", "imbalance", "router-agreement", "sqnr", "sqnr-by-linear", "lost-values"}
}

// curves returns the curves of all arms that have one.
func (p painter) curves(make func(arm convergence.Arm) figure.Curve) (list []armCurve) {
	for i, arm := range p.Arms {
		if c := make(arm); !c.Empty() {
			list = append(list, armCurve{i, c})
		}
	}
	return list
}

// smooth is the smoothing window, in steps, of curves that show a trend.
func (p painter) smooth() int { return 1 + p.Setup.Steps/60 }

// smoothed returns the smoothed curves of a quantity that every step has.
func (p painter) smoothed(key string) []armCurve {
	return p.curves(func(arm convergence.Arm) figure.Curve {
		return figure.Over(seeds(arm, func(log *record.Log) figure.Series { return figure.Steps(log, key).Centred(p.smooth()) })).Thin(curvePoints)
	})
}

// plot draws curves. Bands over the seeds come first; ablations have none. The baseline's line is
// below the others.
func (p painter) plot(to *plot.Plot, list []armCurve, marked bool) {
	for _, d := range list {
		if !p.Arms[d.arm].Ablation {
			to.Add(figure.Band{X: d.Steps, Low: d.Low, High: d.High, Fill: p.styles[d.arm].Shade.Alpha(40)})
		}
	}
	x := figure.NewExtent()
	var hover figure.Hover
	for _, d := range list {
		hover = append(hover, figure.NamedCurve{Name: p.styles[d.arm].Name, X: d.Steps, Y: d.Mean, Shade: p.styles[d.arm].Shade})
		if !marked || !d.Sparse() {
			to.Add(figure.Path{X: d.Steps, Y: d.Mean, Style: p.styles[d.arm].Line})
		}
		if marked && len(d.Steps) <= 40 {
			to.Add(figure.Dots{X: d.Steps, Y: d.Mean, Color: p.styles[d.arm].Shade.Color(), Radius: p.styles[d.arm].Line.Width/2 + 1.2})
		}
		x.Add(d.Steps...)
	}
	x.Add(0, float64(p.Setup.Steps))
	x.Apply(&to.X)
	to.Add(hover)
}

// legend returns the looks of all arms with a curve.
func (p painter) legend(lists ...[]armCurve) (entries []figure.SeriesStyle) {
	for i, l := range p.styles {
		for _, list := range lists {
			if slices.ContainsFunc(list, func(d armCurve) bool { return d.arm == i }) {
				entries = append(entries, l)
				break
			}
		}
	}
	return entries
}

// lossAxis spans all curves. It cuts off values far above the first arm in the list, which is the
// baseline if it has a curve, so that a diverged run does not set the scale.
func lossAxis(list []armCurve) figure.Extent {
	y := figure.NewExtent()
	y.Add(list[0].High...)
	most := y.Max + 0.15*math.Abs(y.Max)
	for _, d := range list {
		y.Add(d.Low...)
		y.Add(d.High...)
	}
	y.Max = min(y.Max, most)
	return y.Padded(0.03)
}

func (p painter) loss() (figure.Figure, bool) {
	list := p.smoothed("loss")
	if len(list) == 0 {
		return figure.Figure{}, false
	}
	whole := figure.NewPanel("whole run", "step", "training loss (nats/token)")
	whole.X.Tick.Marker = figure.Linear(3, figure.Plain)
	lossAxis(list).Apply(&whole.Y)
	p.plot(whole, list, false)
	f := figure.Figure{
		Name: "loss", Title: "Training loss", Legend: p.legend(list), Panels: [][]*plot.Plot{{whole}}, Height: 300,
		Caption: fmt.Sprintf("All arms should fall together, and none should leave the others late. Lines are means over seeds, smoothed over %s; bands go from the lowest seed to the highest.", console.Plural(p.smooth(), "step")),
	}
	if late := p.after(list, 0.7*whole.X.Max); len(late) > 0 {
		end := figure.NewPanel("end of the run", "step", "")
		end.X.Tick.Marker = figure.Linear(3, figure.Plain)
		lossAxis(late).Apply(&end.Y)
		p.plot(end, late, false)
		end.X.Min = 0.7 * whole.X.Max
		f.Panels[0] = append(f.Panels[0], end)
		f.Caption += " The end shows arms that have the same seeds."
	}
	if slices.ContainsFunc(p.Arms, func(a convergence.Arm) bool { return diverged(a) > 0 }) {
		f.Caption += " A line ends where a seed's loss is not finite."
	}
	return f, true
}

// after returns the parts of the curves behind a step that are long enough for lines. It leaves out
// ablations: at the scale of the end, one seed's loss cannot be compared with means over several.
func (p painter) after(list []armCurve, step float64) (late []armCurve) {
	for _, d := range list {
		if p.Arms[d.arm].Ablation {
			continue
		}
		i, _ := slices.BinarySearch(d.Steps, step)
		c := figure.Curve{Steps: d.Steps[i:], Mean: d.Mean[i:], Low: d.Low[i:], High: d.High[i:]}
		if len(c.Steps) > 2 && !c.Empty() {
			late = append(late, armCurve{d.arm, c})
		}
	}
	return late
}

// differenceCurves returns the differences of arms to the baseline, as curves in percent.
func (p painter) differenceCurves(get func(*record.Log) figure.Series) (list []armCurve) {
	for i, arm := range p.Arms {
		if i == 0 {
			continue
		}
		if c := figure.Over(paired(p.Arms[0], arm, get)).Thin(curvePoints); !c.Empty() {
			list = append(list, armCurve{i, c})
		}
	}
	return list
}

// differencePanel shows differences around zero, with the margin. Two things do not set its scale:
// the first part of a run, where losses fall steeply and differences are large, and runs that
// diverge.
func (p painter) differencePanel(title string, list []armCurve, marked bool) *plot.Plot {
	percent := 100 * p.Margin
	reach := 1.25 * percent
	for _, d := range list {
		last := d.Steps[len(d.Steps)-1]
		for i, step := range d.Steps {
			if v := max(math.Abs(d.Low[i]), math.Abs(d.High[i])); step >= last/5 && figure.Finite(v) {
				reach = max(reach, min(1.08*v, 8*percent))
			}
		}
	}
	if reach == 0 {
		reach = 1
	}
	panel := figure.NewPanel(title, "step", "difference to "+p.styles[0].Name+" (%)")
	figure.Extent{Min: -reach, Max: reach}.Apply(&panel.Y)
	panel.Y.Tick.Marker = figure.Linear(6, figure.Signed)
	panel.Add(figure.Span{Low: -percent, High: percent})
	p.plot(panel, list, marked)
	return panel
}

func (p painter) difference() (figure.Figure, bool) {
	window := max(p.Setup.Tail, 1)
	list := p.differenceCurves(func(log *record.Log) figure.Series { return figure.Steps(log, "loss").Trailing(window) })
	if len(list) == 0 {
		return figure.Figure{}, false
	}
	return figure.Figure{
		Name: "difference", Title: fmt.Sprintf("Training loss against %s, seed by seed (margin ±%s)", p.styles[0].Name, figure.Percentage(p.Margin, 2)), Legend: p.legend(list),
		Panels: [][]*plot.Plot{{p.differencePanel("", list, false)}}, Height: 290,
		Caption: fmt.Sprintf("The line should stay in the green zone, the margin of ±%s, without a trend away from zero. It shows differences of means over the last %s, so its right end is what the test judges. Bands go from the lowest seed to the highest.", figure.Percentage(p.Margin, 2), console.Plural(window, "step")),
	}, true
}

func (p painter) heldOut() (figure.Figure, bool) {
	list := p.curves(func(arm convergence.Arm) figure.Curve { return figure.Over(seeds(arm, figure.HeldOut)) })
	if len(list) == 0 {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "validation loss (nats/token)")
	panel.X.Tick.Marker = figure.Linear(3, figure.Plain)
	lossAxis(list).Apply(&panel.Y)
	p.plot(panel, list, true)
	row := []*plot.Plot{panel}
	caption := "Loss on text that no step trains on. The arms should fall together."
	if differences := p.differenceCurves(figure.HeldOut); len(differences) > 0 {
		right := p.differencePanel("", differences, true)
		right.X.Tick.Marker = figure.Linear(3, figure.Plain)
		row = append(row, right)
		caption = "Loss on text that no step trains on. On the left, the arms should fall together. On the right, their differences, seed by seed, should end in the green zone of the margin."
	}
	legend := p.legend(list)
	for i := range legend {
		legend[i].Dots = list[0].Sparse()
	}
	return figure.Figure{Name: "held-out", Title: "Validation loss", Caption: caption, Legend: legend, Panels: [][]*plot.Plot{row}, Height: 280}, true
}

func (p painter) gradientNorm() (figure.Figure, bool) {
	list := p.smoothed("grad_norm")
	y := figure.NewExtent()
	for _, d := range list {
		for _, values := range [][]float64{d.Mean, d.Low, d.High} {
			for i, v := range values {
				if v <= 0 { // a logarithmic axis cannot show it
					values[i] = math.NaN()
				}
			}
			y.Add(values...)
		}
	}
	if y.Empty() {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "gradient norm (log)")
	panel.Y.Scale, panel.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(figure.Logarithmic)
	figure.Extent{Min: y.Min / 1.1, Max: y.Max * 1.1}.Apply(&panel.Y)
	p.plot(panel, list, false)
	return figure.Figure{
		Name: "grad-norm", Title: "Gradient norm before clipping", Legend: p.legend(list), Panels: [][]*plot.Plot{{panel}}, Height: 270,
		Caption: "A norm that rises above the baseline's, or spikes in only one arm, announce an instability before the loss shows it.",
	}, true
}
