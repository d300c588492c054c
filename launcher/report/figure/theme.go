package figure

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
)

// Shade is a colour on white paper and its twin on a dark page, as 0xRRGGBB. A page knows it by a
// CSS variable.
type Shade struct {
	Variable    string
	Light, Dark uint32
}

// Everything but the palette. Light values are unique, since they are how a page finds a shade in
// an SVG.
var (
	Ink   = Shade{"ink", 0x1F2328, 0xE6EAEF}
	Muted = Shade{"muted", 0x59636E, 0x9AA5B1}
	rule  = Shade{"rule", 0xE2E6EA, 0x2B323B}
	Paper = Shade{"paper", 0xFFFFFF, 0x14181D}
	zone  = Shade{"zone", 0xEAF1EC, 0x1C2A23} // where differences are inside the margin
	edge  = Shade{"edge", 0x8DB39B, 0x4F7D62} // of that zone
)

// Palette has the colours that tell apart what is compared, for colour-blind readers too: grey for
// what the others are compared with, then the colours of Okabe and Ito without their yellow, which
// white paper swallows.
var Palette = []Shade{
	{"arm0", 0x6E7781, 0xA3ADB8},
	{"arm1", 0x0072B2, 0x4AA8E0},
	{"arm2", 0xD55E00, 0xF08A4B},
	{"arm3", 0x009E73, 0x2FC79B},
	{"arm4", 0xB8578F, 0xDD8FBC},
	{"arm5", 0xC98A00, 0xF0B429},
	{"arm6", 0x56B4E9, 0x8CCBF2},
}

// Shades returns all of them.
func Shades() []Shade { return append([]Shade{Ink, Muted, rule, Paper, zone, edge}, Palette...) }

// Color is the shade on white paper.
func (s Shade) Color() color.NRGBA { return s.Alpha(255) }

// Alpha is Color with an opacity, up to 255.
func (s Shade) Alpha(a uint8) color.NRGBA {
	return color.NRGBA{R: uint8(s.Light >> 16), G: uint8(s.Light >> 8), B: uint8(s.Light), A: a}
}

// Hex writes 0xRRGGBB as CSS does.
func Hex(rgb uint32) string { return fmt.Sprintf("#%06X", rgb) }

// Look is how one of several things is drawn in every plot, and what the legend calls it.
type Look struct {
	Name  string
	Shade Shade
	Line  draw.LineStyle
}

// Printable drops what XML cannot hold.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFD || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, s)
}

// TextStyle returns type of a size in points. Its font has the metrics of Arial, so a viewer
// without it sets the text alike.
func TextStyle(size float64, s Shade) text.Style {
	return text.Style{
		Color:   s.Color(),
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)),
		Handler: plot.DefaultTextHandler,
	}
}

func boldStyle(size float64, s Shade) text.Style {
	style := TextStyle(size, s)
	style.Font.Weight = xfont.WeightBold
	return style
}

// Aligned returns a style whose text stands so beside its place.
func Aligned(style text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	style.XAlign, style.YAlign = x, y
	return style
}
