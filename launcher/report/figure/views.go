package figure

// Other views of curves: a logarithmic axis, and the end of a run, whose differences the steep
// beginning hides.

import "gonum.org/v1/plot"

// AddViews adds two views of a figure with a single panel of curves: a logarithmic y axis, if all
// values allow it, and the last half of the x axis. draw returns the panel of the figure, new for
// each view.
func (f *Figure) AddViews(draw func() *plot.Plot, curves ...Curve) {
	x, y := NewExtent(), NewExtent()
	for _, c := range curves {
		x.Add(c.Steps...)
		y.Add(c.Mean...)
	}
	f.First = "all"
	if y.Min > 0 {
		panel := draw()
		panel.Y.Scale, panel.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(Logarithmic)
		Extent{y.Min / 1.03, y.Max * 1.03}.Apply(&panel.Y)
		f.Views = append(f.Views, View{"logarithmic", [][]*plot.Plot{{panel}}})
	}
	end := Extent{(x.Min + x.Max) / 2, x.Max}
	y = NewExtent()
	for _, c := range curves {
		y.Add(c.within(end)...)
	}
	if y.Empty() || end.Min == end.Max {
		return
	}
	panel := draw()
	end.Apply(&panel.X)
	y.Padded(0.05).Apply(&panel.Y)
	f.Views = append(f.Views, View{"last half", [][]*plot.Plot{{panel}}})
}

// within returns the means at the steps in a range.
func (c Curve) within(e Extent) (values []float64) {
	for i, step := range c.Steps {
		if step >= e.Min && step <= e.Max {
			values = append(values, c.Mean[i])
		}
	}
	return values
}
