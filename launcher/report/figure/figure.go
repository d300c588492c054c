// Package figure draws the figures of reports: quantities over the steps of runs, as files and
// inside pages, in light and dark.
package figure

// A figure is a titled grid of plots under one legend. Its SVG and PNG look the same.

import (
	"bytes"
	"fmt"
	"image/png"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	figureWidth = vg.Length(600) // in points: 800 CSS pixels
	margin      = vg.Length(12)
	pngDPI      = 192 // two pixels per CSS pixel
)

// Figure is one plot, or several that belong together.
type Figure struct {
	Name    string // of the files
	Title   string
	Caption string // one sentence: what to style for
	Legend  []SeriesStyle
	Panels  [][]*plot.Plot // rows of equal length
	Height  vg.Length
}

// SVG returns the figure as an SVG file.
func (f Figure) SVG() ([]byte, error) {
	canvas := vgsvg.New(figureWidth, f.Height)
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("%s.svg: %w", f.Name, err)
	}
	return fitTexts(out.Bytes()), nil
}

// png returns the figure as a PNG file.
func (f Figure) png() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(figureWidth, f.Height), vgimg.UseDPI(pngDPI))
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(&out, canvas.Image()); err != nil {
		return nil, fmt.Errorf("%s.png: %w", f.Name, err)
	}
	return out.Bytes(), nil
}

func (f Figure) draw(c draw.Canvas) {
	c.SetColor(Paper.Color())
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)

	title := Aligned(boldStyle(12.5, Ink), text.XLeft, text.YTop)
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Title)
	c.Max.Y -= 22
	c.Max.Y -= drawLegend(c, f.Legend)

	tiles := draw.Tiles{Rows: len(f.Panels), Cols: len(f.Panels[0]), PadX: 14, PadY: 12, PadTop: 6, PadRight: 4}
	for i, row := range plot.Align(f.Panels, tiles, c) {
		for j, place := range row {
			if f.Panels[i][j] != nil {
				f.Panels[i][j].Draw(place)
			}
		}
	}
}

// drawLegend draws the names behind samples of their lines, in several rows if needed. It
// returns the height of the legend.
func drawLegend(c draw.Canvas, entries []SeriesStyle) vg.Length {
	const sample, gap, row = vg.Length(20), vg.Length(16), vg.Length(15)
	style := Aligned(TextStyle(10, Ink), text.XLeft, text.YCenter+0.1)
	at := vg.Point{X: c.Min.X, Y: c.Max.Y - row/2}
	for _, e := range entries {
		width := sample + 5 + style.Width(e.Name)
		if at.X > c.Min.X && at.X+width > c.Max.X {
			at = vg.Point{X: c.Min.X, Y: at.Y - row}
		}
		c.StrokeLine2(e.Line, at.X, at.Y, at.X+sample, at.Y)
		c.FillText(style, vg.Point{X: at.X + sample + 5, Y: at.Y}, e.Name)
		at.X += width + gap
	}
	if len(entries) == 0 {
		return 0
	}
	return c.Max.Y - at.Y + row/2
}

// NewPanel returns an empty plot with unobtrusive axes.
func NewPanel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for axis, label := range map[*plot.Axis]string{&p.X: x, &p.Y: y} {
		axis.Label.Text, axis.Label.Padding = label, 3
		axis.Label.TextStyle = Aligned(TextStyle(10, Muted), text.XCenter, text.YBottom)
		axis.Padding = 0
		axis.Tick.Length = 3
		axis.LineStyle = draw.LineStyle{Color: Muted.Color(), Width: vg.Points(0.6)}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Marker = Linear(5, Plain)
	}
	p.X.Tick.Label = Aligned(TextStyle(9.5, Muted), text.XCenter, text.YTop)
	p.Y.Tick.Label = Aligned(TextStyle(9.5, Muted), text.XRight, TickCenter)
	p.Y.Width, p.Y.Tick.Length = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: rule.Color(), Width: vg.Points(0.7)}
	p.Add(grid)
	if title != "" {
		AddHeading(p, title, 0.5)
	}
	return p
}

// AddHeading gives a panel a title centered at a fraction of the width of its data. The library
// would center it over data and labels.
func AddHeading(p *plot.Plot, title string, at float64) {
	p.Title.Text, p.Title.Padding = " ", 7 // only reserves space
	p.Title.TextStyle = boldStyle(10, Muted)
	p.Add(heading{title, at})
}

// TickCenter centers labels on their tick marks. The library places them one descent too high.
const TickCenter = text.YCenter - 0.1

// heading is text above the data of a panel.
type heading struct {
	Text string
	at   float64 // fraction of the width
}

// Plot implements [plot.Plotter].
func (h heading) Plot(c draw.Canvas, _ *plot.Plot) {
	style := Aligned(boldStyle(10, Muted), text.XCenter, text.YBottom)
	c.FillText(style, vg.Point{X: c.X(h.at), Y: c.Max.Y + 6}, h.Text)
}
