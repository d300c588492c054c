package report

// Figures of the effect of quantization on the operands of linear layers.

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
	"spmoe/launcher/report/figure"
)

// panelTitles are the titles for the kinds of operands.
var panelTitles = map[string]string{record.Input: "inputs", record.Weight: "weights", record.Gradient: "gradients"}

// byKind returns the curves of a measure for each kind of operand, and the range of all of them.
func (p painter) byKind(measure func([]record.Quantized) float64) (lists [][]armCurve, y figure.Extent) {
	y = figure.NewExtent()
	for _, kind := range kinds {
		list := p.curves(func(arm convergence.Arm) figure.Curve {
			return figure.Over(seeds(arm, quantized(kind, measure))).Thin(curvePoints)
		})
		for _, d := range list {
			y.Add(d.Low...)
			y.Add(d.High...)
		}
		lists = append(lists, list)
	}
	return lists, y
}

// kindPanels draws such curves side by side on one scale.
func (p painter) kindPanels(lists [][]armCurve, y figure.Extent, label string) (row []*plot.Plot) {
	for i, list := range lists {
		panel := figure.NewPanel(panelTitles[kinds[i]], "step", label)
		panel.X.Tick.Marker = figure.Linear(3, figure.Plain)
		y.Apply(&panel.Y)
		p.plot(panel, list, false)
		row = append(row, panel)
	}
	return row
}

func (p painter) sqnr() (figure.Figure, bool) {
	lists, y := p.byKind(convergence.MedianSQNR)
	if y.Empty() {
		return figure.Figure{}, false
	}
	if y.Max-y.Min < 3 {
		y.Add((y.Max+y.Min)/2-1.5, (y.Max+y.Min)/2+1.5)
	}
	return figure.Figure{
		Name: "sqnr", Title: "Signal to quantization noise over training", Legend: p.legend(lists...), Height: 265, SharedY: true,
		Panels:  [][]*plot.Plot{p.kindPanels(lists, y.Padded(0.08), "median SQNR (dB)")},
		Caption: "Higher is better and flat is healthy: a falling curve means that the tensors drift out of the format's range. Values are medians over layers and linears, with one panel per kind of operand.",
	}, true
}

// lost shows the shares of values that a format cannot hold.
func (p painter) lost() (figure.Figure, bool) {
	small, smallRange := p.byKind(flushed)
	large, largeRange := p.byKind(saturated)
	if smallRange.Empty() {
		return figure.Figure{}, false
	}
	f := figure.Figure{
		Name: "lost-values", Title: "Values flushed to zero and saturated", Legend: p.legend(small...), Height: 265, SharedY: true,
		Caption: "Shares of all values that became zero, and that exceed the largest magnitude of their block's scale. They should be small and not grow.",
	}
	saturates := largeRange.Max > 0
	top := func(e figure.Extent) figure.Extent { return figure.Extent{Min: 0, Max: max(1.08*e.Max, 1e-6)} }
	f.Panels = append(f.Panels, p.kindPanels(small, top(smallRange), "flushed to zero (%)"))
	if saturates {
		f.Panels = append(f.Panels, p.kindPanels(large, top(largeRange), "saturated (%)"))
		f.Height = 430
	} else {
		f.Title = "Values flushed to zero"
		f.Caption = "Shares of all values that became zero. They should be small and not grow. No value saturated."
	}
	return f, true
}

// linearSQNRs are the SQNRs of one arm at a step, by linear and layer, as means over seeds.
type linearSQNRs map[string]map[int]float64

// lastStep returns the last step in which an arm recorded quantization, or 0 if there is none.
func lastStep(arm convergence.Arm) (last int) {
	for _, q := range arm.Quantized("") {
		last = max(last, q.Step)
	}
	return last
}

func linearsOf(arm convergence.Arm, kind string, step int) linearSQNRs {
	sums, counts := linearSQNRs{}, map[string]map[int]float64{}
	for _, q := range arm.Quantized(kind) {
		if v := q.SQNR(); q.Step == step && figure.Finite(v) {
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

// linearOrder returns a sort key that orders linears roughly as a block runs them.
func linearOrder(linear string) int {
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

// sqnrByLinear compares layers and linears at the last recorded step. It shows the arms of the
// verdict, or ablations if only these quantize.
func (p painter) sqnrByLinear() (figure.Figure, bool) {
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
		return figure.Figure{}, false
	}

	x, names := figure.NewExtent(), []string(nil)
	values := map[string][]linearSQNRs{} // by kind, then by arm
	for _, kind := range kinds {
		for _, i := range arms {
			of := linearsOf(p.Arms[i], kind, lastStep(p.Arms[i]))
			values[kind] = append(values[kind], of)
			for name, layers := range of {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
				for _, v := range layers {
					x.Add(v)
				}
			}
		}
	}
	if x.Empty() {
		return figure.Figure{}, false
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(linearOrder(a), linearOrder(b)), cmp.Compare(a, b)) })

	f := figure.Figure{
		Name: "sqnr-by-linear", Title: fmt.Sprintf("SQNR by linear layer after step %d", step),
		Height:  vg.Length(98 + len(names)*(12+7*len(arms))),
		Caption: "Each dot is a layer, each row a linear. The number is that of the layer with the lowest SQNR, the weakest link.",
		Panels:  [][]*plot.Plot{nil},
		SharedY: true,
	}
	for _, i := range arms {
		f.Legend = append(f.Legend, p.styles[i])
	}
	for _, kind := range kinds {
		f.Panels[0] = append(f.Panels[0], p.linearPanel(kind, names, arms, values[kind], x))
	}
	return f, true
}

// linearPanel draws one row of dots per linear and arm.
func (p painter) linearPanel(kind string, names []string, arms []int, values []linearSQNRs, x figure.Extent) *plot.Plot {
	panel := figure.NewPanel(panelTitles[kind], "SQNR (dB)", "")
	pad := max(0.1*(x.Max-x.Min), 0.5)
	figure.Extent{Min: x.Min - 1.6*pad, Max: x.Max + pad}.Apply(&panel.X) // leaves space for the numbers on the left
	panel.X.Tick.Marker = figure.Linear(4, figure.Plain)
	figure.Extent{Min: -0.6, Max: float64(len(names)) - 0.4}.Apply(&panel.Y)
	var ticks plot.ConstantTicks
	for row, name := range names {
		y := float64(len(names) - 1 - row)
		ticks = append(ticks, plot.Tick{Value: y, Label: figure.Printable(name)})
		for a, i := range arms {
			shift := 0.0
			if len(arms) > 1 {
				shift = 0.4 * (0.5 - float64(a)/float64(len(arms)-1))
			}
			p.linearRow(panel, i, y+shift, values[a][names[row]])
		}
	}
	panel.Y.Tick.Marker = ticks
	panel.Y.Tick.Label = figure.Aligned(figure.TextStyle(figure.SmallText, figure.Ink), text.XRight, figure.TickCenter)
	return panel
}

func (p painter) linearRow(panel *plot.Plot, arm int, y float64, layers map[int]float64) {
	if len(layers) == 0 {
		return
	}
	var xs, ys []float64
	e, lowest := figure.NewExtent(), 0
	for layer, v := range layers {
		if v < e.Min || v == e.Min && layer < lowest {
			lowest = layer
		}
		e.Add(v)
		xs, ys = append(xs, v), append(ys, y)
	}
	slices.Sort(xs)
	line := p.styles[arm].Line
	line.Width, line.Dashes = 0.8, nil
	panel.Add(figure.Path{X: []float64{e.Min, e.Max}, Y: []float64{y, y}, Style: line},
		figure.Dots{X: xs, Y: ys, Color: p.styles[arm].Shade.Color(), Radius: 2.2})
	if len(layers) > 1 {
		style := figure.Aligned(figure.TextStyle(figure.SmallText, figure.Muted), text.XRight, text.YCenter)
		panel.Add(figure.Note{X: e.Min, Y: y, Text: fmt.Sprint(lowest), Style: style, Shift: vg.Point{X: -4}})
	}
}
