package report

// Figures of what quantisation does to the operands of linear layers.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
)

// panelTitles of the kinds of operands.
var panelTitles = map[string]string{record.Input: "inputs", record.Weight: "weights", record.Gradient: "gradients"}

// byKind makes, for each kind of operand, the curves of a measure of it, and the range of all.
func (p painter) byKind(measure func([]record.Quantised) float64) (lists [][]drawn, y extent) {
	y = newExtent()
	for _, kind := range kinds {
		list := p.curves(func(arm convergence.Arm) curve {
			return over(seeds(arm, quantised(kind, measure))).thin(curvePoints)
		})
		for _, d := range list {
			y.add(d.low...)
			y.add(d.high...)
		}
		lists = append(lists, list)
	}
	return lists, y
}

// kindPanels draws them side by side on one scale; only the first panel has the label of y.
func (p painter) kindPanels(lists [][]drawn, y extent, label string, titled, last bool) (row []*plot.Plot) {
	for i, list := range lists {
		title, x := "", ""
		if titled {
			title = panelTitles[kinds[i]]
		}
		if last {
			x = "step"
		}
		panel := newPanel(title, x, label)
		panel.X.Tick.Marker = linear(3, plain)
		y.apply(&panel.Y)
		p.plot(panel, list, false)
		row, label = append(row, panel), ""
	}
	return row
}

func (p painter) sqnr() (figure, bool) {
	lists, y := p.byKind(convergence.MedianSQNR)
	if y.empty() {
		return figure{}, false
	}
	if y.max-y.min < 3 {
		y.add((y.max+y.min)/2-1.5, (y.max+y.min)/2+1.5)
	}
	return figure{
		name: "sqnr", title: "Signal to quantisation noise over training", legend: p.legend(lists...), height: 265,
		panels:  [][]*plot.Plot{p.kindPanels(lists, y.padded(0.08), "median SQNR (dB)", true, true)},
		caption: "Higher is better and flat is healthy: a curve that falls means that the tensors drift out of the format's range (median over layers and linears, one panel for each kind of operand).",
	}, true
}

// lost shows the values that a format cannot hold.
func (p painter) lost() (figure, bool) {
	small, smallRange := p.byKind(flushed)
	large, largeRange := p.byKind(saturated)
	if smallRange.empty() {
		return figure{}, false
	}
	f := figure{
		name: "lost-values", title: "Values flushed to zero and saturated", legend: p.legend(small...), height: 265,
		caption: "Shares of all values that became zero, and that lie beyond the largest magnitude which their block's scale allows: they should be small and not grow.",
	}
	saturates := largeRange.max > 0
	top := func(e extent) extent { return extent{0, max(1.08*e.max, 1e-6)} }
	f.panels = append(f.panels, p.kindPanels(small, top(smallRange), "flushed to zero (%)", true, !saturates))
	if saturates {
		f.panels = append(f.panels, p.kindPanels(large, top(largeRange), "saturated (%)", false, true))
		f.height = 400
	} else {
		f.title = "Values flushed to zero"
		f.caption = "Shares of all values that became zero: they should be small and not grow. No value saturated."
	}
	return f, true
}

// linears are the SQNRs of one arm at a step, by linear and layer, means over seeds.
type linears map[string]map[int]float64

// lastStep returns the last step in which an arm recorded quantisation; 0 if none.
func lastStep(arm convergence.Arm) (last int) {
	for _, q := range arm.Quantised("") {
		last = max(last, q.Step)
	}
	return last
}

func linearsOf(arm convergence.Arm, kind string, step int) linears {
	sums, counts := linears{}, map[string]map[int]float64{}
	for _, q := range arm.Quantised(kind) {
		if v := q.SQNR(); q.Step == step && finite(v) {
			if sums[q.Linear] == nil {
				sums[q.Linear], counts[q.Linear] = map[int]float64{}, map[int]float64{}
			}
			sums[q.Linear][q.Layer] += v
			counts[q.Linear][q.Layer]++
		}
	}
	for name, layers := range sums {
		for layer := range layers {
			layers[layer] /= counts[name][layer]
		}
	}
	return sums
}

// place orders linears about as a block runs them.
func place(linear string) int {
	module, name, _ := strings.Cut(linear, ".")
	modules := []string{"self_attn", "mlp", "shared_experts", "experts"}
	names := []string{"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_proj", "kv_b_proj", "o_proj", "gate_up_proj", "gate_proj", "up_proj", "down_proj"}
	at := func(list []string, s string) int {
		if i := slices.Index(list, s); i >= 0 {
			return i
		}
		return len(list)
	}
	return at(modules, module)*(len(names)+1) + at(names, name)
}

// sqnrByLinear compares layers and linears at the last recorded step, for the arms that the verdict is about, or for ablations if
// only they quantise.
func (p painter) sqnrByLinear() (figure, bool) {
	var arms, ablations []int
	step := 0
	for i, arm := range p.Arms {
		last := lastStep(arm)
		switch {
		case last == 0:
			continue
		case arm.Ablation:
			ablations = append(ablations, i)
		default:
			arms = append(arms, i)
		}
		step = max(step, last)
	}
	if len(arms) == 0 {
		arms = ablations
	}
	if len(arms) == 0 {
		return figure{}, false
	}

	x, names := newExtent(), []string(nil)
	values := map[string][]linears{} // by kind, then by arm
	for _, kind := range kinds {
		for _, i := range arms {
			of := linearsOf(p.Arms[i], kind, lastStep(p.Arms[i]))
			values[kind] = append(values[kind], of)
			for name, layers := range of {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
				for _, v := range layers {
					x.add(v)
				}
			}
		}
	}
	if x.empty() {
		return figure{}, false
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) })

	f := figure{
		name: "sqnr-by-linear", title: fmt.Sprintf("SQNR by linear layer after step %d", step),
		height:  vg.Length(98 + len(names)*(12+7*len(arms))),
		caption: "Find the weakest link: each dot is a layer, each row a linear, and the number is that of the layer with the lowest SQNR.",
		panels:  [][]*plot.Plot{nil},
	}
	for _, i := range arms {
		f.legend = append(f.legend, p.looks[i])
	}
	for k, kind := range kinds {
		f.panels[0] = append(f.panels[0], p.linearPanel(kind, k == 0, names, arms, values[kind], x))
	}
	return f, true
}

// linearPanel draws a row of dots for each linear and, below each other, for each arm.
func (p painter) linearPanel(kind string, first bool, names []string, arms []int, values []linears, x extent) *plot.Plot {
	panel := newPanel(panelTitles[kind], "SQNR (dB)", "")
	pad := max(0.1*(x.max-x.min), 0.5)
	extent{x.min - 1.6*pad, x.max + pad}.apply(&panel.X) // the numbers stand on the left
	panel.X.Tick.Marker = linear(4, plain)
	extent{-0.6, float64(len(names)) - 0.4}.apply(&panel.Y)
	var ticks plot.ConstantTicks
	for row, name := range names {
		y := float64(len(names) - 1 - row)
		if !first {
			name = " "
		}
		ticks = append(ticks, plot.Tick{Value: y, Label: printable(name)})
		for a, i := range arms {
			shift := 0.0
			if len(arms) > 1 {
				shift = 0.4 * (0.5 - float64(a)/float64(len(arms)-1))
			}
			p.linearRow(panel, i, y+shift, values[a][names[row]])
		}
	}
	panel.Y.Tick.Marker = ticks
	panel.Y.Tick.Label = aligned(textStyle(8.5, ink), text.XRight, tickCenter)
	return panel
}

func (p painter) linearRow(panel *plot.Plot, arm int, y float64, layers map[int]float64) {
	if len(layers) == 0 {
		return
	}
	var xs, ys []float64
	e, lowest := newExtent(), 0
	for layer, v := range layers {
		if v < e.min || v == e.min && layer < lowest {
			lowest = layer
		}
		e.add(v)
		xs, ys = append(xs, v), append(ys, y)
	}
	slices.Sort(xs)
	line := p.looks[arm].line
	line.Width, line.Dashes = 0.8, nil
	panel.Add(path{[]float64{e.min, e.max}, []float64{y, y}, line}, dots{xs, ys, p.looks[arm].shade.color(), 2.2, false})
	if len(layers) > 1 {
		style := aligned(textStyle(7, muted), text.XRight, text.YCenter)
		panel.Add(note{e.min, y, fmt.Sprint(lowest), style, vg.Point{X: -4}})
	}
}
