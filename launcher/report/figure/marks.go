package figure

// The marks of plots. They are clipped at the axes, and values that are not finite leave a gap.

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// grid draws a horizontal line at each tick mark that has a label.
type grid struct{ style draw.LineStyle }

// Plot implements [plot.Plotter].
func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, height := p.Transforms(&c)
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := height(tick.Value); !tick.IsMinor() && y >= c.Min.Y && y <= c.Max.Y {
			c.StrokeLine2(g.style, c.Min.X, y, c.Max.X, y)
		}
	}
}

// Path is a line through points.
type Path struct {
	X, Y  []float64
	Style draw.LineStyle
}

// Plot implements [plot.Plotter].
func (m Path) Plot(c draw.Canvas, p *plot.Plot) {
	for from, to := range pieces(m.Y, m.Y) {
		if to-from == 1 { // a single point between gaps, which a line would not show
			Dots{m.X[from:to], m.Y[from:to], m.Style.Color, m.Style.Width, false}.Plot(c, p)
			continue
		}
		c.StrokeLines(m.Style, c.ClipLinesXY(points(c, p, m.X[from:to], m.Y[from:to]))...)
	}
}

// Band is the area between two lines.
type Band struct {
	X, Low, High []float64
	Fill         color.Color
}

// Plot implements [plot.Plotter].
func (m Band) Plot(c draw.Canvas, p *plot.Plot) {
	for from, to := range pieces(m.Low, m.High) {
		area := points(c, p, m.X[from:to], m.High[from:to])
		below := points(c, p, m.X[from:to], m.Low[from:to])
		for i := len(below) - 1; i >= 0; i-- {
			area = append(area, below[i])
		}
		if to-from > 1 {
			c.FillPolygon(m.Fill, c.ClipPolygonXY(area))
		}
	}
}

// Dots are marks at points, filled or hollow.
type Dots struct {
	X, Y   []float64
	Color  color.Color
	Radius vg.Length
	Ring   bool
}

// Plot implements [plot.Plotter].
func (m Dots) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.GlyphStyle{Color: m.Color, Radius: m.Radius, Shape: draw.CircleGlyph{}}
	if m.Ring {
		style.Shape = draw.RingGlyph{}
	}
	for from, to := range pieces(m.Y, m.X) {
		for _, at := range points(c, p, m.X[from:to], m.Y[from:to]) {
			if c.Contains(at) {
				c.DrawGlyph(style, at)
			}
		}
	}
}

// Span is an area between two values of x or of y over the whole plot, with lines at its ends and
// at zero.
type Span struct {
	Low, High float64
	Vertical  bool // between values of x
}

// Plot implements [plot.Plotter].
func (m Span) Plot(c draw.Canvas, p *plot.Plot) {
	dashed := draw.LineStyle{Color: edge.Color(), Width: vg.Points(0.9), Dashes: []vg.Length{4, 3}}
	zero := draw.LineStyle{Color: Muted.Color(), Width: vg.Points(0.8)}
	at, least, most := p.Y.Norm, c.Min.Y, c.Max.Y
	if m.Vertical {
		at, least, most = p.X.Norm, c.Min.X, c.Max.X
	}
	place := func(v float64) vg.Length {
		return min(max(least+vg.Length(at(v))*(most-least), least), most)
	}
	low, high := place(m.Low), place(m.High)
	box := vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: low}, Max: vg.Point{X: c.Max.X, Y: high}}
	if m.Vertical {
		box = vg.Rectangle{Min: vg.Point{X: low, Y: c.Min.Y}, Max: vg.Point{X: high, Y: c.Max.Y}}
	}
	c.SetColor(zone.Color())
	c.Fill(box.Path())
	for i, v := range []float64{m.Low, m.High, 0} {
		if n := at(v); n < 0 || n > 1 {
			continue
		}
		style := []draw.LineStyle{dashed, dashed, zero}[i]
		if m.Vertical {
			c.StrokeLine2(style, place(v), c.Min.Y, place(v), c.Max.Y)
		} else {
			c.StrokeLine2(style, c.Min.X, place(v), c.Max.X, place(v))
		}
	}
}

// Note is text next to a point.
type Note struct {
	X, Y  float64
	Text  string
	Style draw.TextStyle
	Shift vg.Point // of the text, from the point
}

// Plot implements [plot.Plotter].
func (m Note) Plot(c draw.Canvas, p *plot.Plot) {
	if Finite(m.X) && Finite(m.Y) {
		c.FillText(m.Style, points(c, p, []float64{m.X}, []float64{m.Y})[0].Add(m.Shift), m.Text)
	}
}

// points maps values to positions on the canvas.
func points(c draw.Canvas, p *plot.Plot, x, y []float64) []vg.Point {
	toX, toY := p.Transforms(&c)
	list := make([]vg.Point, len(x))
	for i := range x {
		list[i] = vg.Point{X: toX(x[i]), Y: toY(y[i])}
	}
	return list
}

// pieces yields the ranges [from, to) in which both slices are finite.
func pieces(a, b []float64) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from := -1
		for i := range a {
			ok := Finite(a[i]) && Finite(b[i])
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
