package convergence

// The forest chart: each arm's difference to the baseline with its confidence interval, and the
// margin of the verdict. A page draws it; documents show the picture.

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"spmoe/launcher/report"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
)

// forests returns a chart per loss; none for the baseline alone.
func (c charts) forests() (list []page.Chart) {
	percent := 100 * c.Margin
	reach := max(1.3*percent, 0.01)
	for _, loss := range bothLosses {
		rows := c.forest(loss.of)
		if rows == nil {
			return nil
		}
		for _, row := range rows {
			for _, m := range row.Marks {
				reach = max(reach, min(1.1*max(math.Abs(m.From), math.Abs(m.To)), 6*percent)) // a diverged run does not set the scale
			}
		}
		list = append(list, page.Chart{
			ID: "forest-" + loss.name, Title: fmt.Sprintf("Final %s loss against %s", loss.name, c.Arms[0].Name), Kind: page.Rows,
			Zone: &page.Range{-percent, percent}, Rows: rows,
			Caption: fmt.Sprintf("Bars inside the green zone, the margin of ±%s, show equivalence. Dots are mean differences, "+
				"bars their 95%% confidence intervals, rings single seeds. One seed has no interval.", report.Percentage(c.Margin, 2)),
		})
	}
	for i := range list {
		list[i].X = page.Axis{Name: "difference, %", Range: &page.Range{-reach, reach}}
	}
	return list
}

// forest returns a row per compared arm, in percent; nil if no arm has a difference.
func (c charts) forest(of func(Arm) *Difference) (rows []page.Row) {
	there := false
	for i, a := range c.Arms[1:] {
		d := of(a)
		row := page.Row{Name: a.Name, Note: "no finite difference"}
		if d != nil {
			there = true
			cell, _ := differenceCells(d)
			row.Note = cell.Text + " " + cell.Small
			for _, pair := range d.Pairs {
				row.Marks = append(row.Marks, page.Mark{Kind: page.Ring, From: 100 * pair, To: 100 * pair, Color: i + 1})
			}
			if d.Seeds > 1 {
				row.Marks = append(row.Marks, page.Mark{Kind: page.Interval, From: 100 * d.CI95[0], To: 100 * d.CI95[1], Color: i + 1})
			}
			row.Marks = append(row.Marks, page.Mark{Kind: page.Dot, From: 100 * d.Mean, To: 100 * d.Mean, Color: i + 1})
		}
		rows = append(rows, row)
	}
	if !there {
		return nil
	}
	return rows
}

// Colors of the picture.
var (
	ink  = color.NRGBA{R: 0x1f, G: 0x23, B: 0x28, A: 255}
	blue = color.NRGBA{R: 0x00, G: 0x72, B: 0xb2, A: 255}
	zone = color.NRGBA{R: 0xe3, G: 0xef, B: 0xe7, A: 255}
)

// writeForest writes the picture of both losses side by side. Without differences it writes none.
func (r Result) writeForest(path string) error {
	list := charts{r}.forests()
	if list == nil {
		return nil
	}
	row := make([]*plot.Plot, len(list))
	for i, c := range list {
		var err error
		if row[i], err = picture(c); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	canvas := vgimg.NewWith(vgimg.UseWH(800, vg.Length(90+26*len(list[0].Rows))), vgimg.UseDPI(144))
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: 24, PadTop: 8, PadBottom: 8, PadLeft: 8, PadRight: 12}
	for i, to := range plot.Align([][]*plot.Plot{row}, tiles, draw.New(canvas))[0] {
		row[i].Draw(to)
	}
	var png bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&png); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return system.WriteFile(path, png.Bytes())
}

// bar is the interval of a difference.
type bar struct {
	plotter.XYs
	plotter.XErrors
}

// picture draws a chart of rows.
func picture(c page.Chart) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.Title, c.X.Name
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = c.X.Range[0], c.X.Range[1], -0.6, float64(len(c.Rows))-0.4
	band, err := plotter.NewPolygon(
		plotter.XYs{{X: c.Zone[0], Y: p.Y.Min}, {X: c.Zone[1], Y: p.Y.Min}, {X: c.Zone[1], Y: p.Y.Max}, {X: c.Zone[0], Y: p.Y.Max}},
	)
	if err != nil {
		return nil, err
	}
	band.Color, band.LineStyle.Width = zone, 0
	zero, err := plotter.NewLine(plotter.XYs{{Y: p.Y.Min}, {Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	zero.Color = color.Gray{Y: 0xb0}
	p.Add(band, zero)
	var names plot.ConstantTicks
	for i, row := range c.Rows {
		y := float64(len(c.Rows) - 1 - i)
		names = append(names, plot.Tick{Value: y, Label: row.Name})
		var seeds plotter.XYs
		for _, m := range row.Marks {
			at := plotter.XYs{{X: min(max(m.From, p.X.Min), p.X.Max), Y: y}}
			switch m.Kind {
			case page.Ring:
				seeds = append(seeds, plotter.XY{X: at[0].X, Y: y + 0.22})
			case page.Interval:
				middle := (m.From + m.To) / 2
				e, err := plotter.NewXErrorBars(bar{plotter.XYs{{X: middle, Y: y}}, plotter.XErrors{{Low: m.From - middle, High: m.To - middle}}})
				if err != nil {
					return nil, err
				}
				e.Color, e.Width = blue, 1.5
				p.Add(e)
			default:
				dot, err := plotter.NewScatter(at)
				if err != nil {
					return nil, err
				}
				dot.GlyphStyle = draw.GlyphStyle{Color: blue, Radius: 3.4, Shape: draw.CircleGlyph{}}
				p.Add(dot)
			}
		}
		rings, err := plotter.NewScatter(seeds)
		if err != nil {
			return nil, err
		}
		rings.GlyphStyle = draw.GlyphStyle{Color: blue, Radius: 2, Shape: draw.RingGlyph{}}
		p.Add(rings)
	}
	p.Y.Tick.Marker, p.Y.Width, p.Y.Tick.Length = names, 0, 0
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Color, style.Font.Variant = ink, "Sans"
	}
	return p, nil
}
