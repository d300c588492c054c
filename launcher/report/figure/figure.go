// Package figure draws the figures of reports: quantities over the steps of runs, as files and
// inside pages, in light and dark.
package figure

// A figure is a titled grid of plots under one legend. Its SVG and PNG look the same.

import (
	"bytes"
	"fmt"
	"image/png"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	margin = vg.Length(12) // around a figure
	pngDPI = 192           // two pixels per CSS pixel
)

// Figure is one plot, or several that belong together.
type Figure struct {
	Name    string // of the files
	Title   string
	Caption string // one sentence: what to style for
	Legend  []SeriesStyle
	Panels  [][]*plot.Plot // rows of equal length
	Views   []View         // other panels that a page can show instead; nil: none
	First   string         // name of the view of Panels; empty without Views
	Height  vg.Length      // in its file
	// SharedY says that the panels of a row have the same y axis. It is labelled once per row.
	SharedY bool
}

// View is another way to show the data of a figure, such as with logarithmic axes.
type View struct {
	Name   string
	Panels [][]*plot.Plot
}

// layout is a size and an arrangement of figures.
type layout struct {
	class   string    // of the SVG in a page
	width   vg.Length // in points, with both margins
	titled  bool      // pages set titles themselves
	stacked bool      // one panel per row
	strips  int       // the maximum number of strips per panel; 0: no values under the pointer
}

// A page shows a figure in the narrow layout on phones and otherwise in the wide one. Both are
// scaled to the width of the column, which must not make text smaller than 13 CSS pixels on a
// phone of 420.
var (
	inFile = layout{width: 600, titled: true} // 800 CSS pixels
	wide   = layout{class: "wide", width: 680 + 2*margin, strips: 40}
	narrow = layout{class: "narrow", width: 272 + 2*margin, stacked: true, strips: 16}
)

// SVG returns the figure as an SVG file.
func (f Figure) SVG() ([]byte, error) {
	text, _, err := f.svg(inFile)
	return text, err
}

// svg returns the figure and its height in a layout.
func (f Figure) svg(l layout) ([]byte, vg.Length, error) {
	height := f.height(l)
	canvas := &svgCanvas{Canvas: vgsvg.New(l.width, height), width: l.width, most: l.strips}
	f.draw(draw.New(canvas), l)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, 0, fmt.Errorf("%s.svg: %w", f.Name, err)
	}
	return canvas.addStrips(fitTexts(out.Bytes())), height, nil
}

// png returns the figure as a PNG file.
func (f Figure) png() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(inFile.width, f.Height), vgimg.UseDPI(pngDPI))
	f.draw(draw.New(canvas), inFile)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(&out, canvas.Image()); err != nil {
		return nil, fmt.Errorf("%s.png: %w", f.Name, err)
	}
	return out.Bytes(), nil
}

// titleHeight is the height of the title, with the space below it.
const titleHeight = vg.Length(22)

// height returns the height in a layout. Rows of panels are as high as in the file.
func (f Figure) height(l layout) vg.Length {
	if l.titled {
		return f.Height
	}
	row := (f.Height - 2*margin - titleHeight - f.legendHeight(inFile)) / vg.Length(len(f.Panels))
	return 2*margin + f.legendHeight(l) + row*vg.Length(len(f.arrange(l)))
}

func (f Figure) legendHeight(l layout) vg.Length {
	return drawLegend(draw.NewCanvas(new(recorder.Canvas), l.width-2*margin, f.Height), f.Legend)
}

// arrange returns the rows of panels in a layout.
func (f Figure) arrange(l layout) (rows [][]*plot.Plot) {
	for _, row := range f.Panels {
		if l.stacked {
			for _, p := range row {
				if p != nil {
					rows = append(rows, []*plot.Plot{p})
				}
			}
			continue
		}
		row = slices.Clone(row)
		for i, p := range row {
			if f.SharedY && i > 0 && p != nil {
				row[i] = unlabelled(p)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// unlabelled returns a panel without the labels of its y axis.
func unlabelled(p *plot.Plot) *plot.Plot {
	other, marks := *p, p.Y.Tick.Marker
	other.Y.Label.Text = ""
	other.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := slices.Clone(marks.Ticks(low, high))
		for i := range ticks {
			ticks[i].Label = " "
		}
		return ticks
	})
	return &other
}

func (f Figure) draw(c draw.Canvas, l layout) {
	c.SetColor(Paper.Color())
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if l.titled {
		title := Aligned(boldStyle(12.5, Ink), text.XLeft, text.YTop)
		c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Title)
		c.Max.Y -= titleHeight
	}
	c.Max.Y -= drawLegend(c, f.Legend)
	panels := f.arrange(l)
	tiles := draw.Tiles{Rows: len(panels), Cols: len(panels[0]), PadX: 14, PadY: 12, PadTop: 6, PadRight: 4}
	for i, row := range plot.Align(panels, tiles, c) {
		for j, place := range row {
			if panels[i][j] != nil {
				panels[i][j].Draw(place)
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
		if e.Dots {
			c.DrawGlyph(draw.GlyphStyle{Color: e.Line.Color, Radius: 3, Shape: draw.CircleGlyph{}}, vg.Point{X: at.X + sample/2, Y: at.Y})
		} else {
			c.StrokeLine2(e.Line, at.X, at.Y, at.X+sample, at.Y)
		}
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
	p.X.Tick.Label = Aligned(TextStyle(SmallText, Muted), text.XCenter, text.YTop)
	p.Y.Tick.Label = Aligned(TextStyle(SmallText, Muted), text.XRight, TickCenter)
	p.Y.Width, p.Y.Tick.Length, p.Y.Padding = 0, 0, 4
	if x == "step" {
		p.X.Tick.Marker = Whole(5)
	}
	p.Add(grid{draw.LineStyle{Color: rule.Color(), Width: vg.Points(0.7)}})
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
