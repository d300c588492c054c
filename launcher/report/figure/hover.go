package figure

// The values under the pointer: invisible strips over a panel, one per step, whose titles browsers
// show.

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Hover shows the values of curves over steps. The first curve determines the strips.
type Hover []NamedCurve

// NamedCurve is a curve with the name of its quantity.
type NamedCurve struct {
	Name string
	X, Y []float64
}

// mostStrips bounds the number of strips per panel.
const mostStrips = 60

// svgCanvas is an SVG with strips.
type svgCanvas struct {
	*vgsvg.Canvas
	hover  bool // collect strips
	strips []strip
}

type strip struct {
	vg.Rectangle
	title string
}

// Plot implements [plot.Plotter].
func (h Hover) Plot(c draw.Canvas, p *plot.Plot) {
	below := c.Canvas
	for tile, ok := below.(draw.Canvas); ok; tile, ok = below.(draw.Canvas) { // tiles are canvases on canvases
		below = tile.Canvas
	}
	canvas, ok := below.(*svgCanvas)
	if !ok || !canvas.hover || len(h) == 0 {
		return
	}
	var at []float64
	every := 1 + (len(h[0].X)-1)/mostStrips
	for i, x := range h[0].X {
		if (len(h[0].X)-1-i)%every == 0 && x >= p.X.Min && x <= p.X.Max {
			at = append(at, x)
		}
	}
	toX, _ := p.Transforms(&c)
	for i, x := range at {
		left, right := c.Min.X, c.Max.X
		low, high := math.Inf(-1), math.Inf(1)
		if i > 0 {
			low = (at[i-1] + x) / 2
			left = toX(low)
		}
		if i+1 < len(at) {
			high = (x + at[i+1]) / 2
			right = toX(high)
		}
		title := "step " + strconv.FormatFloat(x, 'f', 0, 64)
		for _, curve := range h {
			if y := curve.nearest(x, low, high); Finite(y) {
				title += "\n" + strings.TrimSpace(curve.Name+" "+Short(y))
			}
		}
		canvas.strips = append(canvas.strips, strip{vg.Rectangle{Min: vg.Point{X: left, Y: c.Min.Y}, Max: vg.Point{X: right, Y: c.Max.Y}}, title})
	}
}

// nearest returns the value whose step is nearest to x, of those between low and high; NaN if there
// is none.
func (n NamedCurve) nearest(x, low, high float64) float64 {
	best, value := math.Inf(1), math.NaN()
	for i, at := range n.X {
		if d := math.Abs(at - x); d < best && at >= low && at < high && Finite(n.Y[i]) {
			best, value = d, n.Y[i]
		}
	}
	return value
}

// addStrips puts the strips on top of everything else.
func (c *svgCanvas) addStrips(svg []byte) []byte {
	end := bytes.LastIndex(svg, []byte("</g>"))
	if len(c.strips) == 0 || end < 0 {
		return svg
	}
	var b bytes.Buffer
	b.Write(svg[:end])
	for _, s := range c.strips {
		size := s.Size()
		fmt.Fprintf(&b, `<rect x="%.5g" y="%.5g" width="%.5g" height="%.5g"><title>%s</title></rect>`+"\n",
			s.Min.X.Points(), s.Min.Y.Points(), size.X.Points(), size.Y.Points(), html.EscapeString(Printable(s.title)))
	}
	b.Write(svg[end:])
	return b.Bytes()
}

// Short formats a number with five significant digits.
func Short(v float64) string {
	if v == 0 || !Finite(v) {
		return plainShort(v)
	}
	magnitude := int(math.Floor(math.Log10(math.Abs(v))))
	if magnitude < -5 || magnitude > 14 {
		return strconv.FormatFloat(v, 'g', 5, 64)
	}
	text := Plain(v, max(0, 4-magnitude))
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
