package report

// Marks that plots are made of. What lies outside the axes is cut off; what is not finite leaves a gap.

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// path is a line through points.
type path struct {
	x, y  []float64
	style draw.LineStyle
}

// Plot implements plot.Plotter.
func (m path) Plot(c draw.Canvas, p *plot.Plot) {
	for from, to := range pieces(m.y, m.y) {
		if to-from == 1 { // alone between gaps: a line would not show
			dots{m.x[from:to], m.y[from:to], m.style.Color, m.style.Width, false}.Plot(c, p)
			continue
		}
		c.StrokeLines(m.style, c.ClipLinesXY(points(c, p, m.x[from:to], m.y[from:to]))...)
	}
}

// band is the area between two lines.
type band struct {
	x, low, high []float64
	fill         color.Color
}

// Plot implements plot.Plotter.
func (m band) Plot(c draw.Canvas, p *plot.Plot) {
	for from, to := range pieces(m.low, m.high) {
		area := points(c, p, m.x[from:to], m.high[from:to])
		below := points(c, p, m.x[from:to], m.low[from:to])
		for i := len(below) - 1; i >= 0; i-- {
			area = append(area, below[i])
		}
		if to-from > 1 {
			c.FillPolygon(m.fill, c.ClipPolygonXY(area))
		}
	}
}

// dots are marks at points, filled or as rings.
type dots struct {
	x, y   []float64
	color  color.Color
	radius vg.Length
	ring   bool
}

// Plot implements plot.Plotter.
func (m dots) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.GlyphStyle{Color: m.color, Radius: m.radius, Shape: draw.CircleGlyph{}}
	if m.ring {
		style.Shape = draw.RingGlyph{}
	}
	for from, to := range pieces(m.y, m.x) {
		for _, at := range points(c, p, m.x[from:to], m.y[from:to]) {
			c.DrawGlyph(style, at)
		}
	}
}

// span is the area, over the whole plot, between two values of x or of y, with lines at its ends and at zero.
type span struct {
	low, high float64
	vertical  bool // values of x
}

// Plot implements plot.Plotter.
func (m span) Plot(c draw.Canvas, p *plot.Plot) {
	dashed := draw.LineStyle{Color: edge.color(), Width: vg.Points(0.9), Dashes: []vg.Length{4, 3}}
	zero := draw.LineStyle{Color: muted.color(), Width: vg.Points(0.8)}
	at, least, most := p.Y.Norm, c.Min.Y, c.Max.Y
	if m.vertical {
		at, least, most = p.X.Norm, c.Min.X, c.Max.X
	}
	place := func(v float64) vg.Length {
		return min(max(least+vg.Length(at(v))*(most-least), least), most)
	}
	low, high := place(m.low), place(m.high)
	box := vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: low}, Max: vg.Point{X: c.Max.X, Y: high}}
	if m.vertical {
		box = vg.Rectangle{Min: vg.Point{X: low, Y: c.Min.Y}, Max: vg.Point{X: high, Y: c.Max.Y}}
	}
	c.SetColor(zone.color())
	c.Fill(box.Path())
	for i, v := range []float64{m.low, m.high, 0} {
		if n := at(v); n < 0 || n > 1 {
			continue
		}
		style := []draw.LineStyle{dashed, dashed, zero}[i]
		if m.vertical {
			c.StrokeLine2(style, place(v), c.Min.Y, place(v), c.Max.Y)
		} else {
			c.StrokeLine2(style, c.Min.X, place(v), c.Max.X, place(v))
		}
	}
}

// note is text beside a point.
type note struct {
	x, y  float64
	text  string
	style draw.TextStyle
	shift vg.Point // of the text from the point
}

// Plot implements plot.Plotter.
func (m note) Plot(c draw.Canvas, p *plot.Plot) {
	if finite(m.x) && finite(m.y) {
		c.FillText(m.style, points(c, p, []float64{m.x}, []float64{m.y})[0].Add(m.shift), m.text)
	}
}

// points maps values to places on the canvas.
func points(c draw.Canvas, p *plot.Plot, x, y []float64) []vg.Point {
	toX, toY := p.Transforms(&c)
	list := make([]vg.Point, len(x))
	for i := range x {
		list[i] = vg.Point{X: toX(x[i]), Y: toY(y[i])}
	}
	return list
}

// pieces yields the stretches [from, to) in which both slices are finite.
func pieces(a, b []float64) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from := -1
		for i := range a {
			ok := finite(a[i]) && finite(b[i])
			if ok && from < 0 {
				from = i
			}
			if !ok && from >= 0 {
				if !yield(from, i) {
					return
				}
				from = -1
			}
		}
		if from >= 0 {
			yield(from, len(a))
		}
	}
}
