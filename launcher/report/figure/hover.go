package figure

// The values under the pointer: invisible strips over a panel, one per step or range of steps. The
// style sheet shows a strip's values while the pointer is over it, without a script.

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Hover shows the values of curves over the x axis of a panel.
type Hover []NamedCurve

// NamedCurve is a curve with the name of its quantity, and the style of its marker if it has one.
type NamedCurve struct {
	Name  string
	X, Y  []float64
	Shade Shade
}

// svgCanvas is an SVG with strips.
type svgCanvas struct {
	*vgsvg.Canvas
	width  vg.Length
	most   int // strips per panel; 0: none
	strips []strip
}

// strip is an area with the lines of text that it shows.
type strip struct {
	vg.Rectangle
	lines []stripLine
}

// stripLine is a line of text behind a marker in its shade.
type stripLine struct {
	Shade
	text string
}

// Plot implements [plot.Plotter].
func (h Hover) Plot(c draw.Canvas, p *plot.Plot) {
	below := c.Canvas
	for tile, ok := below.(draw.Canvas); ok; tile, ok = below.(draw.Canvas) { // tiles are canvases on canvases
		below = tile.Canvas
	}
	canvas, ok := below.(*svgCanvas)
	if !ok || canvas.most == 0 {
		return
	}
	at := h.positions(p.X.Min, p.X.Max, max(3*canvas.most/(2+len(h)), 1)) // fewer strips of more lines, for the size of the page
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
		lines := []stripLine{{text: p.X.Label.Text + " " + Short(x)}}
		for _, curve := range h {
			if y := curve.nearest(x, low, high); Finite(y) {
				lines = append(lines, stripLine{curve.Shade, strings.TrimSpace(curve.Name + " " + Short(y))})
			}
		}
		canvas.strips = append(canvas.strips, strip{vg.Rectangle{Min: vg.Point{X: left, Y: c.Min.Y}, Max: vg.Point{X: right, Y: c.Max.Y}}, lines})
	}
}

// positions returns at most the given number of the curves' places between two ends, the last of
// them included.
func (h Hover) positions(from, to float64, most int) (at []float64) {
	var all []float64
	for _, curve := range h {
		for _, x := range curve.X {
			if x >= from && x <= to {
				all = append(all, x)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	every := (len(all) + most - 1) / most
	for i, x := range all {
		if (len(all)-1-i)%every == 0 {
			at = append(at, x)
		}
	}
	return at
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
		fmt.Fprintf(&b, `<g class="strip"><rect x="%.4g" y="%.4g" width="%.4g" height="%.4g"/>`, s.Min.X.Points(), s.Min.Y.Points(), size.X.Points(), size.Y.Points())
		s.writeBox(&b, c.width)
		b.WriteString("</g>\n")
	}
	b.Write(svg[end:])
	return b.Bytes()
}

// writeBox writes the box with the values of a strip, at its side and inside a figure of the given
// width. The canvas has drawn with y upwards; the style sheet determines font and colors.
func (s strip) writeBox(b *bytes.Buffer, figure vg.Length) {
	const pad, row, gap = 5, 13, 4
	width := vg.Length(0)
	for _, l := range s.lines {
		width = max(width, TextStyle(SmallText, Ink).Width(l.label()))
	}
	width += 2 * pad
	x := s.Max.X + gap
	if x+width > figure-margin {
		x = s.Min.X - gap - width
	}
	x = max(min(x, figure-margin-width), margin)
	top := s.Max.Y.Points()
	fmt.Fprintf(b, `<g><rect x="%.4g" y="%.4g" width="%.4g" height="%d"/><text transform="scale(1, -1)">`, x.Points(), top-float64(row*len(s.lines)+pad), width.Points(), row*len(s.lines)+pad)
	for i, l := range s.lines {
		fmt.Fprintf(b, `<tspan x="%.4g" y="%.4g">`, (x + pad).Points(), float64(row*(i+1)-1)-top)
		if l.Shade != (Shade{}) {
			fmt.Fprintf(b, `<tspan style="fill:%s">%s</tspan>`, Hex(l.Light), marker)
		}
		b.WriteString(html.EscapeString(Printable(l.text)) + "</tspan>")
	}
	b.WriteString("</text></g>")
}

// marker stands before the name of a curve, in its color.
const marker = "● "

// label returns the whole text of the line.
func (l stripLine) label() string {
	if l.Shade == (Shade{}) {
		return l.text
	}
	return marker + l.text
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
