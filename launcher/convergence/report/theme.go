package report

// The look of all plots: colours, each with a twin for dark pages, line styles and type.

import (
	"fmt"
	"image/color"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"spmoe/launcher/convergence"
)

// shade is a colour on white paper and its twin on a dark page, as 0xRRGGBB. A page knows it by a CSS variable.
type shade struct {
	variable    string
	light, dark uint32
}

// Everything but the arms. Light values are unique, since they are how a page finds a shade in an SVG.
var (
	ink   = shade{"ink", 0x1F2328, 0xE6EAEF}
	muted = shade{"muted", 0x59636E, 0x9AA5B1}
	rule  = shade{"rule", 0xE2E6EA, 0x2B323B}
	paper = shade{"paper", 0xFFFFFF, 0x14181D}
	zone  = shade{"zone", 0xEAF1EC, 0x1C2A23} // where differences are inside the margin
	edge  = shade{"edge", 0x8DB39B, 0x4F7D62} // of that zone
)

// armShades tell arms apart, for colour-blind readers too: grey for the baseline, then the palette of Okabe and Ito without its
// yellow, which white paper swallows.
var armShades = []shade{
	{"arm0", 0x6E7781, 0xA3ADB8},
	{"arm1", 0x0072B2, 0x4AA8E0},
	{"arm2", 0xD55E00, 0xF08A4B},
	{"arm3", 0x009E73, 0x2FC79B},
	{"arm4", 0xB8578F, 0xDD8FBC},
	{"arm5", 0xC98A00, 0xF0B429},
	{"arm6", 0x56B4E9, 0x8CCBF2},
}

// shades returns all of them.
func shades() []shade { return append([]shade{ink, muted, rule, paper, zone, edge}, armShades...) }

func (s shade) color() color.NRGBA { return s.alpha(255) }

func (s shade) alpha(a uint8) color.NRGBA {
	return color.NRGBA{R: uint8(s.light >> 16), G: uint8(s.light >> 8), B: uint8(s.light), A: a}
}

func hex(rgb uint32) string { return fmt.Sprintf("#%06X", rgb) }

// look is how an arm is drawn in every plot.
type look struct {
	name  string
	shade shade
	line  draw.LineStyle
}

// looksOf gives the baseline a broad grey line, the arms compared with it solid colours and ablations thin dashed ones. When the colours
// run out, they come again with dots.
func looksOf(arms []convergence.Arm) []look {
	looks := make([]look, len(arms))
	for i, arm := range arms {
		n, again := i, false
		if i >= len(armShades) {
			n, again = 1+(i-1)%(len(armShades)-1), true
		}
		l := look{name: printable(arm.Name), shade: armShades[n]}
		l.line = draw.LineStyle{Color: l.shade.color(), Width: vg.Points(1.5)}
		switch {
		case i == 0:
			l.line.Width = vg.Points(3.2) // so that it shows below lines that coincide with it
		case arm.Ablation:
			l.line.Width, l.line.Dashes = vg.Points(1.2), []vg.Length{5, 2.5}
		}
		if again {
			l.line.Dashes = []vg.Length{1.5, 2}
		}
		looks[i] = l
	}
	return looks
}

// printable drops what XML cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFD || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, s)
}

// textStyle returns type of a size in points. Its font has the metrics of Arial, so a viewer without it sets the text alike.
func textStyle(size float64, s shade) text.Style {
	return text.Style{
		Color:   s.color(),
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)),
		Handler: plot.DefaultTextHandler,
	}
}

func boldStyle(size float64, s shade) text.Style {
	style := textStyle(size, s)
	style.Font.Weight = xfont.WeightBold
	return style
}

func aligned(style text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	style.XAlign, style.YAlign = x, y
	return style
}
