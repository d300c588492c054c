package figure

// The look of all plots: colors for light and dark pages, line styles and fonts.

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

// Shade is a color on white paper and its counterpart on a dark page, as 0xRRGGBB. Pages refer to
// it by a CSS variable.
type Shade struct {
	Variable    string
	Light, Dark uint32
}

// All shades except the palette. Light values are unique, because a page identifies a shade in an
// SVG by them.
var (
	Ink   = Shade{"ink", 0x1F2328, 0xE6EAEF}
	Muted = Shade{"muted", 0x59636E, 0x9AA5B1}
	rule  = Shade{"rule", 0xE2E6EA, 0x2B323B}
	Paper = Shade{"paper", 0xFFFFFF, 0x14181D}
	zone  = Shade{"zone", 0xEAF1EC, 0x1C2A23} // differences inside the margin
	edge  = Shade{"edge", 0x8DB39B, 0x4F7D62} // the border of the zone

	// of words that judge
	good = Shade{"good", 0x00704F, 0x3DCFA4}
	bad  = Shade{"bad", 0xA84600, 0xF2935A}
	warn = Shade{"warn", 0x7D5700, 0xEFB840}
)

// Palette distinguishes what is compared, also for color-blind readers: gray for the baseline, then
// the colors of Okabe and Ito without their yellow, which is invisible on white paper.
var Palette = []Shade{
	{"arm0", 0x6E7781, 0xA3ADB8},
	{"arm1", 0x0072B2, 0x4AA8E0},
	{"arm2", 0xD55E00, 0xF08A4B},
	{"arm3", 0x009E73, 0x2FC79B},
	{"arm4", 0xB8578F, 0xDD8FBC},
	{"arm5", 0xC98A00, 0xF0B429},
	{"arm6", 0x56B4E9, 0x8CCBF2},
}

// Shades returns all shades.
func Shades() []Shade {
	return append([]Shade{Ink, Muted, rule, Paper, zone, edge, good, bad, warn}, Palette...)
}

// Color returns the shade on white paper.
func (s Shade) Color() color.NRGBA { return s.Alpha(255) }

// Alpha returns Color with an opacity, up to 255.
func (s Shade) Alpha(a uint8) color.NRGBA {
	return color.NRGBA{R: uint8(s.Light >> 16), G: uint8(s.Light >> 8), B: uint8(s.Light), A: a}
}

// Hex formats 0xRRGGBB for CSS.
func Hex(rgb uint32) string { return fmt.Sprintf("#%06X", rgb) }

// SeriesStyle is the appearance of one compared thing in all plots, and its name in the legend.
type SeriesStyle struct {
	Name  string
	Shade Shade
	Line  draw.LineStyle
	Dots  bool // points without a line
}

// Printable removes characters that XML cannot hold.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFD || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, s)
}

// SmallText is the smallest size of text. A smaller one could not be read on a phone.
const SmallText = 9.5

// TextStyle returns a text style of a size in points. Its font has the metrics of Arial, so that
// text looks the same for viewers without it.
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

// Aligned returns a style with the given alignment of text to its position.
func Aligned(style text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	style.XAlign, style.YAlign = x, y
	return style
}
