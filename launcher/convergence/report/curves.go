package report

// Figures of quantities over the steps of training: losses, their differences, gradient norm.

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	console "spmoe/launcher/report"
)

// curvePoints is how many points of a curve are drawn at most.
const curvePoints = 300

// painter draws one comparison.
type painter struct {
	convergence.Result
	looks []look // by arm
}

// drawn is a curve and whose it is.
type drawn struct {
	arm int
	curve
}

// figures returns those that the comparison has data for.
func (p painter) figures() (list []figure) {
	for _, make := range []func() (figure, bool){
		p.forest, p.loss, p.difference, p.heldOut, p.gradientNorm, p.imbalance, p.agreement, p.sqnr, p.sqnrByLinear, p.lost,
	} {
		if f, ok := make(); ok {
			list = append(list, f)
		}
	}
	return list
}

// figureNames are those of all figures, drawn or not.
func figureNames() []string {
	return []string{"forest", "loss", "difference", "held-out", "grad-norm", "imbalance", "router-agreement", "sqnr", "sqnr-by-linear", "lost-values"}
}

// curves makes a curve of each arm that has one.
func (p painter) curves(make func(arm convergence.Arm) curve) (list []drawn) {
	for i, arm := range p.Arms {
		if c := make(arm); !c.empty() {
			list = append(list, drawn{i, c})
		}
	}
	return list
}

// smooth is the window, in steps, of curves that only show a course.
func (p painter) smooth() int { return 1 + p.Setup.Steps/60 }

// smoothed makes the curves of a quantity that every step has.
func (p painter) smoothed(get func(*record.Log) series) []drawn {
	return p.curves(func(arm convergence.Arm) curve {
		return over(seeds(arm, func(log *record.Log) series { return get(log).centred(p.smooth()) })).thin(curvePoints)
	})
}

// plot draws curves: bands over the seeds first, ablations without, and the baseline below the others' lines.
func (p painter) plot(to *plot.Plot, list []drawn, marked bool) {
	for _, d := range list {
		if !p.Arms[d.arm].Ablation {
			to.Add(band{d.steps, d.low, d.high, p.looks[d.arm].shade.alpha(40)})
		}
	}
	x := newExtent()
	for _, d := range list {
		to.Add(path{d.steps, d.mean, p.looks[d.arm].line})
		if marked && len(d.steps) <= 40 {
			to.Add(dots{d.steps, d.mean, p.looks[d.arm].shade.color(), p.looks[d.arm].line.Width/2 + 1.2, false})
		}
		x.add(d.steps...)
	}
	x.add(0, float64(p.Setup.Steps))
	x.apply(&to.X)
}

// legend returns the looks of the arms that have a curve.
func (p painter) legend(lists ...[]drawn) (entries []look) {
	for i, l := range p.looks {
		for _, list := range lists {
			if slices.ContainsFunc(list, func(d drawn) bool { return d.arm == i }) {
				entries = append(entries, l)
				break
			}
		}
	}
	return entries
}

// lossAxis spans all curves, but not what lies far above the baseline, or the first arm that there is, as a diverged run does.
func lossAxis(list []drawn) extent {
	y := newExtent()
	y.add(list[0].high...)
	most := y.max + 0.15*math.Abs(y.max)
	for _, d := range list {
		y.add(d.low...)
		y.add(d.high...)
	}
	y.max = min(y.max, most)
	return y.padded(0.03)
}

func (p painter) loss() (figure, bool) {
	list := p.smoothed(losses)
	if len(list) == 0 {
		return figure{}, false
	}
	whole := newPanel("whole run", "step", "training loss (nats a token)")
	whole.X.Tick.Marker = linear(3, plain)
	lossAxis(list).apply(&whole.Y)
	p.plot(whole, list, false)
	f := figure{
		name: "loss", title: "Training loss", legend: p.legend(list), panels: [][]*plot.Plot{{whole}}, height: 300,
		caption: fmt.Sprintf("Do the arms fall together, and does none leave the others late: means over seeds of the loss, smoothed over %s, with bands from the lowest seed to the highest.", console.Plural(p.smooth(), "step")),
	}
	if late := p.after(list, 0.7*whole.X.Max); len(late) > 0 {
		end := newPanel("end of the run", "step", "")
		end.X.Tick.Marker = linear(3, plain)
		lossAxis(late).apply(&end.Y)
		p.plot(end, late, false)
		end.X.Min = 0.7 * whole.X.Max
		f.panels[0] = append(f.panels[0], end)
		f.caption += " The end shows arms that have the same seeds."
	}
	if slices.ContainsFunc(p.Arms, func(a convergence.Arm) bool { return diverged(a) > 0 }) {
		f.caption += " A line ends where a seed's loss is no number."
	}
	return f, true
}

// after returns what of the curves lies behind a step, if it is enough for lines. Ablations are left out: at the scale of the end, one
// seed's loss says nothing beside means over several.
func (p painter) after(list []drawn, step float64) (late []drawn) {
	for _, d := range list {
		if p.Arms[d.arm].Ablation {
			continue
		}
		i, _ := slices.BinarySearch(d.steps, step)
		c := curve{d.steps[i:], d.mean[i:], d.low[i:], d.high[i:]}
		if len(c.steps) > 2 && !c.empty() {
			late = append(late, drawn{d.arm, c})
		}
	}
	return late
}

// differenceCurves makes the curves of how far arms lie above the baseline.
func (p painter) differenceCurves(get func(*record.Log) series) (list []drawn) {
	for i, arm := range p.Arms {
		if i == 0 {
			continue
		}
		if c := over(paired(p.Arms[0], arm, get)).thin(curvePoints); !c.empty() {
			list = append(list, drawn{i, c})
		}
	}
	return list
}

// differencePanel shows them around zero, with the margin. What happens in the first part of a run, where losses fall steeply and
// differences are large for a while, and what diverges, does not set the scale.
func (p painter) differencePanel(title string, list []drawn, marked bool) *plot.Plot {
	percent := 100 * p.Margin
	reach := 1.25 * percent
	for _, d := range list {
		last := d.steps[len(d.steps)-1]
		for i, step := range d.steps {
			if v := max(math.Abs(d.low[i]), math.Abs(d.high[i])); step >= last/5 && finite(v) {
				reach = max(reach, min(1.08*v, 8*percent))
			}
		}
	}
	if reach == 0 {
		reach = 1
	}
	panel := newPanel(title, "step", "difference to "+p.looks[0].name+" (%)")
	extent{-reach, reach}.apply(&panel.Y)
	panel.Y.Tick.Marker = linear(6, signed)
	panel.Add(span{low: -percent, high: percent})
	p.plot(panel, list, marked)
	return panel
}

func (p painter) difference() (figure, bool) {
	window := max(p.Setup.Tail, 1)
	list := p.differenceCurves(func(log *record.Log) series { return losses(log).trailing(window) })
	if len(list) == 0 {
		return figure{}, false
	}
	return figure{
		name: "difference", title: fmt.Sprintf("Training loss against %s, seed by seed (margin ±%s)", p.looks[0].name, percentage(p.Margin, 2)), legend: p.legend(list),
		panels: [][]*plot.Plot{{p.differencePanel("", list, false)}}, height: 290,
		caption: fmt.Sprintf("Does the line stay in the green zone, the margin of ±%s, without a trend away from zero: differences of means over the last %s, so that the right end is what the test judges; bands go from the lowest seed to the highest.", percentage(p.Margin, 2), console.Plural(window, "step")),
	}, true
}

func (p painter) heldOut() (figure, bool) {
	list := p.curves(func(arm convergence.Arm) curve { return over(seeds(arm, heldOut)) })
	if len(list) == 0 {
		return figure{}, false
	}
	panel := newPanel("", "step", "held-out loss (nats a token)")
	panel.X.Tick.Marker = linear(3, plain)
	lossAxis(list).apply(&panel.Y)
	p.plot(panel, list, true)
	row := []*plot.Plot{panel}
	caption := "Loss on text that no step trains on: the arms should fall together."
	if differences := p.differenceCurves(heldOut); len(differences) > 0 {
		right := p.differencePanel("", differences, true)
		right.X.Tick.Marker = linear(3, plain)
		row = append(row, right)
		caption = "Loss on text that no step trains on: left the arms should fall together, right their differences, seed by seed, should end in the green zone of the margin."
	}
	return figure{name: "held-out", title: "Held-out loss", caption: caption, legend: p.legend(list), panels: [][]*plot.Plot{row}, height: 280}, true
}

func (p painter) gradientNorm() (figure, bool) {
	list := p.smoothed(gradientNorms)
	y := newExtent()
	for _, d := range list {
		for _, values := range [][]float64{d.mean, d.low, d.high} {
			for i, v := range values {
				if v <= 0 { // has no place on a logarithmic axis
					values[i] = math.NaN()
				}
			}
			y.add(values...)
		}
	}
	if y.empty() {
		return figure{}, false
	}
	panel := newPanel("", "step", "gradient norm (log)")
	panel.Y.Scale, panel.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logarithmic)
	extent{y.min / 1.1, y.max * 1.1}.apply(&panel.Y)
	p.plot(panel, list, false)
	return figure{
		name: "grad-norm", title: "Gradient norm before clipping", legend: p.legend(list), panels: [][]*plot.Plot{{panel}}, height: 270,
		caption: "A norm that rises away from the baseline's, or spikes that only one arm has, announce an instability before the loss shows it.",
	}, true
}
