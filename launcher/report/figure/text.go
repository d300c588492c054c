package figure

// Text in SVG that keeps its place with any font that the viewer has.

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
)

// svgText matches a text element as the SVG canvas writes it.
var svgText = regexp.MustCompile(`(<text [^>]*)(style="font-family:)(Liberation Sans)(;[^">]*font-weight:)(\w+)(;[^">]*font-size:)([\d.]+)(px[^>]*>)([^<]*)(</text>)`)

// fitTexts adds fallback fonts and sets the length of each text, since it was placed by its width
// in the first font.
func fitTexts(svg []byte) []byte {
	return svgText.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := svgText.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(part[7]), 64)
		if err != nil {
			return element
		}
		style := TextStyle(size, Ink)
		if string(part[5]) == "bold" {
			style = boldStyle(size, Ink)
		}
		width := style.Width(html.UnescapeString(string(part[9]))).Points()
		if width == 0 {
			return element
		}
		return fmt.Appendf(nil, `%stextLength="%.4g" lengthAdjust="spacingAndGlyphs" %s%s,Arial,Helvetica,sans-serif%s%s%s%s%s%s%s`,
			part[1], width, part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10])
	})
}
