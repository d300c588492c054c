package overview

// Heat maps of the experts of each layer over steps: one row per expert, one column per recorded
// step.

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// The maximum numbers of columns, of rows per map and of rows per layer.
const (
	heatColumns = 80
	heatRows    = 160
	layerRows   = 32
	heatLevels  = 6 // shades of each color
)

// heat is a map of values from -1 (one color) to 1 (the other).
type heat struct {
	steps  []float64
	values [][]float64 // by row from the bottom, then by column; NaN: no value
}

// Plot implements [plot.Plotter]. All cells of one shade form one shape, which keeps the page
// small.
func (h heat) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	edges := h.edges()
	for level := -heatLevels; level <= heatLevels; level++ {
		if level == 0 {
			continue
		}
		var shape vg.Path
		for row, values := range h.values {
			for from := 0; from < len(values); from++ {
				to := from
				for to < len(values) && levelOf(values[to]) == level {
					to++
				}
				if to == from {
					continue
				}
				left, right, low, high := toX(edges[from]), toX(edges[to]), toY(float64(row)), toY(float64(row+1))
				shape.Move(vg.Point{X: left, Y: low})
				shape.Line(vg.Point{X: right, Y: low})
				shape.Line(vg.Point{X: right, Y: high})
				shape.Line(vg.Point{X: left, Y: high})
				shape.Close()
				from = to - 1
			}
		}
		if len(shape) > 0 {
			c.SetColor(levelColor(level))
			c.Fill(shape)
		}
	}
}

// edges returns the boundaries of the columns. Each column ends at its step.
func (h heat) edges() []float64 { return append([]float64{h.steps[0] - 1}, h.steps...) }

func levelOf(v float64) int {
	if math.IsNaN(v) {
		return 0
	}
	return int(math.Round(max(-1, min(1, v)) * heatLevels))
}

func levelColor(level int) color.Color {
	shade := figure.Palette[2]
	if level < 0 {
		shade, level = figure.Palette[1], -level
	}
	return shade.Alpha(uint8(255 * level / heatLevels))
}

// table is a quantity of the experts, by layer and step.
type table map[int]map[int][]float64

func (r Run) table(of func(record.Load) []float64) table {
	t := table{}
	for _, l := range r.Log.Loads {
		if values := of(l); len(values) > 0 {
			if t[l.Layer] == nil {
				t[l.Layer] = map[int][]float64{}
			}
			t[l.Layer][l.Step] = values
		}
	}
	return t
}

// draw draws a table whose values scale maps to -1 to 1. shown describes what was left out. ok is
// false if there is nothing to draw.
func (r Run) draw(t table, scale func(float64) float64) (panel *plot.Plot, shown string, ok bool) {
	var steps, layers []int
	for layer, at := range t {
		layers = append(layers, layer)
		for step := range at {
			steps = append(steps, step)
		}
	}
	slices.Sort(layers)
	slices.Sort(steps)
	steps = thin(slices.Compact(steps), heatColumns)
	if len(steps) == 0 {
		return nil, "", false
	}
	experts := 0
	for _, at := range t {
		for _, values := range at {
			experts = max(experts, len(values))
		}
	}
	group := (experts + layerRows - 1) / layerRows
	rows := (experts + group - 1) / group
	if most := max(1, heatRows/rows); len(layers) > most {
		shown += fmt.Sprintf(" Of %d layers, %d are shown.", len(layers), len(thin(layers, most)))
		layers = thin(layers, most)
	}
	if group > 1 {
		shown += fmt.Sprintf(" A row is the mean of %d experts.", group)
	}
	var h heat
	for _, step := range steps {
		h.steps = append(h.steps, float64(step))
	}
	var ticks plot.ConstantTicks
	panel = figure.NewPanel("", "step", "")
	for i, layer := range layers {
		for row := range rows {
			h.values = append(h.values, make([]float64, len(steps)))
			for column, step := range steps {
				h.values[len(h.values)-1][column] = scale(mean(t[layer][step], row*group, (row+1)*group))
			}
		}
		ticks = append(ticks, plot.Tick{Value: (float64(i) + 0.5) * float64(rows), Label: fmt.Sprintf("layer %d", layer)})
	}
	panel.Add(h)
	for i := range layers[1:] {
		y := float64((i + 1) * rows)
		panel.Add(figure.Path{X: []float64{h.edges()[0], h.edges()[len(steps)]}, Y: []float64{y, y}, Style: draw.LineStyle{Color: figure.Paper.Color(), Width: 2.5}})
	}
	panel.Y.Tick.Marker = ticks
	panel.Y.Tick.Label = figure.Aligned(figure.TextStyle(figure.SmallText, figure.Ink), text.XRight, figure.TickCenter)
	figure.Extent{Min: 0, Max: float64(len(h.values))}.Apply(&panel.Y)
	edges := h.edges()
	figure.Extent{Min: edges[0], Max: edges[len(edges)-1]}.Apply(&panel.X)
	return panel, shown, true
}

// mean averages the elements [from, to) that exist; NaN if there are none.
func mean(values []float64, from, to int) float64 {
	sum, n := 0.0, 0
	for _, v := range values[min(from, len(values)):min(to, len(values))] {
		sum, n = sum+v, n+1
	}
	return sum / float64(n)
}

func height(of *plot.Plot, styles int) vg.Length {
	return vg.Length(74+15*styles) + vg.Length(max(90, min(440, of.Y.Max*5)))
}

// loads draws the number of tokens per expert relative to the mean.
func (r Run) loads() (figure.Figure, bool) {
	panel, shown, ok := r.draw(r.table(func(l record.Load) []float64 {
		var all int64
		for _, n := range l.Tokens {
			all += n
		}
		values := make([]float64, len(l.Tokens))
		for i, n := range l.Tokens {
			values[i] = float64(n) * float64(len(values)) / float64(max(all, 1))
		}
		return values
	}), func(v float64) float64 { return math.Log2(v) / 2 })
	if !ok {
		return figure.Figure{}, false
	}
	styles := []figure.SeriesStyle{scaleStyle("a quarter of the mean or less", figure.Palette[1]), scaleStyle("four times the mean or more", figure.Palette[2])}
	return figure.Figure{
		Name: "loads", Title: "Tokens of each expert", Legend: styles, Panels: [][]*plot.Plot{{panel}}, Height: height(panel, 1),
		Caption: "One row per expert, one column per recorded step; white is the mean of the layer. Rows that stay orange are overloaded experts; rows that stay blue are experts that hardly learn." + shown,
	}, true
}

// biases draws the selection biases.
func (r Run) biases() (figure.Figure, bool) {
	most := 0.0
	t := r.table(func(l record.Load) []float64 {
		values := make([]float64, len(l.Bias))
		for i, b := range l.Bias {
			values[i] = float64(b)
			most = max(most, math.Abs(values[i]))
		}
		return values
	})
	if most == 0 {
		return figure.Figure{}, false
	}
	panel, shown, ok := r.draw(t, func(v float64) float64 { return v / most })
	if !ok {
		return figure.Figure{}, false
	}
	limit := fmt.Sprintf("%.3g", most)
	styles := []figure.SeriesStyle{scaleStyle("−"+limit, figure.Palette[1]), scaleStyle("+"+limit, figure.Palette[2])}
	return figure.Figure{
		Name: "bias", Title: "Selection bias of each expert", Legend: styles, Panels: [][]*plot.Plot{{panel}}, Height: height(panel, 1),
		Caption: "The bias is added to an expert’s score when experts are selected. It rises for experts with too few tokens. Biases that keep growing mean that the load is not balanced." + shown,
	}, true
}

func scaleStyle(name string, shade figure.Shade) figure.SeriesStyle {
	style := styleOf(name, shade)
	style.Line.Width = 8
	return style
}
