package report

// A figure is a titled grid of plots under one legend, drawn the same as SVG and as PNG.

import (
	"bytes"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	figureWidth = vg.Length(600) // points: 800 pixels of CSS
	margin      = vg.Length(12)
	pngDPI      = 192 // two pixels for each of CSS
)

// figure is one plot, or several that belong together.
type figure struct {
	name    string // of its files
	title   string
	caption string // what to look for, a sentence
	legend  []look
	panels  [][]*plot.Plot // rows of equal length
	height  vg.Length
}

// svg returns the figure as an SVG file.
func (f figure) svg() ([]byte, error) {
	canvas := vgsvg.New(figureWidth, f.height)
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("%s.svg: %w", f.name, err)
	}
	return fitTexts(out.Bytes()), nil
}

// png returns the figure as a PNG file.
func (f figure) png() ([]byte, error) {
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(figureWidth, f.height), vgimg.UseDPI(pngDPI))}
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("%s.png: %w", f.name, err)
	}
	return out.Bytes(), nil
}

func (f figure) draw(c draw.Canvas) {
	c.SetColor(paper.color())
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)

	title := aligned(boldStyle(12.5, ink), text.XLeft, text.YTop)
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.title)
	c.Max.Y -= 22
	c.Max.Y -= drawLegend(c, f.legend)

	tiles := draw.Tiles{Rows: len(f.panels), Cols: len(f.panels[0]), PadX: 14, PadY: 12, PadTop: 6, PadRight: 4}
	for i, row := range plot.Align(f.panels, tiles, c) {
		for j, place := range row {
			if f.panels[i][j] != nil {
				f.panels[i][j].Draw(place)
			}
		}
	}
}

// drawLegend writes the arms' names behind samples of their lines, in as many rows as they need, and returns the height it took.
func drawLegend(c draw.Canvas, entries []look) vg.Length {
	const sample, gap, row = vg.Length(20), vg.Length(16), vg.Length(15)
	style := aligned(textStyle(10, ink), text.XLeft, text.YCenter+0.1)
	at := vg.Point{X: c.Min.X, Y: c.Max.Y - row/2}
	for _, e := range entries {
		width := sample + 5 + style.Width(e.name)
		if at.X > c.Min.X && at.X+width > c.Max.X {
			at = vg.Point{X: c.Min.X, Y: at.Y - row}
		}
		c.StrokeLine2(e.line, at.X, at.Y, at.X+sample, at.Y)
		c.FillText(style, vg.Point{X: at.X + sample + 5, Y: at.Y}, e.name)
		at.X += width + gap
	}
	if len(entries) == 0 {
		return 0
	}
	return c.Max.Y - at.Y + row/2
}

// newPanel returns an empty plot with quiet axes.
func newPanel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for axis, label := range map[*plot.Axis]string{&p.X: x, &p.Y: y} {
		axis.Label.Text, axis.Label.Padding = label, 3
		axis.Label.TextStyle = aligned(textStyle(10, muted), text.XCenter, text.YBottom)
		axis.Padding = 0
		axis.Tick.Length = 3
		axis.LineStyle = draw.LineStyle{Color: muted.color(), Width: vg.Points(0.6)}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Marker = linear(5, plain)
	}
	p.X.Tick.Label = aligned(textStyle(9.5, muted), text.XCenter, text.YTop)
	p.Y.Tick.Label = aligned(textStyle(9.5, muted), text.XRight, tickCenter)
	p.Y.Width, p.Y.Tick.Length = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: rule.color(), Width: vg.Points(0.7)}
	p.Add(grid)
	if title != "" {
		addHeading(p, title, 0.5)
	}
	return p
}

// addHeading gives a panel a title that is centered over a place in its data, as a part of their width; the library would center it
// over the labels, too.
func addHeading(p *plot.Plot, title string, at float64) {
	p.Title.Text, p.Title.Padding = " ", 7 // only makes room
	p.Title.TextStyle = boldStyle(10, muted)
	p.Add(heading{title, at})
}

// tickCenter centers digits on their tick mark, which the library puts a descent too high.
const tickCenter = text.YCenter - 0.1

// heading is text above the data of a panel.
type heading struct {
	text string
	at   float64 // part of the width
}

// Plot implements plot.Plotter.
func (h heading) Plot(c draw.Canvas, _ *plot.Plot) {
	style := aligned(boldStyle(10, muted), text.XCenter, text.YBottom)
	c.FillText(style, vg.Point{X: c.X(h.at), Y: c.Max.Y + 6}, h.text)
}
