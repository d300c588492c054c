package main

// Two figures: the differences of all arms with their intervals, and those of a study's arms as a
// function of tokens.

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var colors = []color.Color{
	color.NRGBA{G: 0x72, B: 0xb2, A: 255}, color.NRGBA{R: 0xd5, G: 0x5e, A: 255}, color.NRGBA{G: 0x9e, B: 0x73, A: 255},
	color.NRGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 255}, color.NRGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 255}, color.NRGBA{R: 0xe6, G: 0x9f, A: 255},
	color.Gray{Y: 0x40}, color.Gray{Y: 0xa0},
}

// line is the course of an arm's difference in percent, with points every step million tokens.
type line struct {
	name    string
	percent []float64
	step    float64
}

// points are dots with horizontal bars.
type points struct {
	plotter.XYs
	plotter.XErrors
}

// drawGaps draws a row per arm: its difference in training loss and the 95 % interval.
func drawGaps(path string, arms []arm) error {
	p := plot.New()
	p.X.Label.Text = "difference in training loss, %, and 95 % interval"
	var names plot.ConstantTicks
	var at points
	for i, a := range arms {
		y, ci := float64(len(arms)-1-i), a.train.Interval(0.025)
		names = append(names, plot.Tick{Value: y, Label: a.study + ": " + a.name})
		at.XYs = append(at.XYs, plotter.XY{X: 100 * a.train.Mean, Y: y})
		at.XErrors = append(at.XErrors, struct{ Low, High float64 }{100 * (ci[0] - a.train.Mean), 100 * (ci[1] - a.train.Mean)})
	}
	bars, err := plotter.NewXErrorBars(at)
	if err != nil {
		return err
	}
	dots, err := plotter.NewScatter(at.XYs)
	if err != nil {
		return err
	}
	zero, err := plotter.NewLine(plotter.XYs{{Y: -0.5}, {Y: float64(len(arms)) - 0.5}})
	if err != nil {
		return err
	}
	zero.Color, bars.Color, bars.Width = color.Gray{Y: 0xb0}, colors[0], 1.5
	dots.GlyphStyle = draw.GlyphStyle{Color: colors[0], Radius: 3, Shape: draw.CircleGlyph{}}
	p.Add(zero, bars, dots)
	p.Y.Tick.Marker, p.Y.Width, p.Y.Tick.Length = names, 0, 0
	return write(path, p, vg.Length(70+20*len(arms)))
}

// drawCourses draws the differences of arms as a function of tokens.
func drawCourses(path string, lines []line) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Legend.Top = "million tokens", "difference in training loss, %", true
	p.Legend.Left = true // differences begin near zero
	for i, l := range lines {
		var xy plotter.XYs
		for j, y := range l.percent {
			xy = append(xy, plotter.XY{X: l.step * (float64(j) + 0.5), Y: y})
		}
		curve, err := plotter.NewLine(xy)
		if err != nil {
			return err
		}
		curve.Color, curve.Width = colors[i%len(colors)], 1.5
		p.Add(curve)
		p.Legend.Add(l.name, curve)
	}
	p.Add(plotter.NewGrid())
	return write(path, p, 360)
}

func write(path string, p *plot.Plot, height vg.Length) error {
	for _, style := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	canvas := vgsvg.New(720, height)
	p.Draw(draw.Crop(draw.New(canvas), 8, -12, 4, -8))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(path, svg.Bytes(), 0o666)
}
