// Package svgtext measures the text of figures inside HTML pages.
package svgtext

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
)

var (
	figures = regexp.MustCompile(`(?s)<figure id="([\w-]+)">(.*?)</figure>`)
	images  = regexp.MustCompile(`(?s)<svg class="(\w+)(?: view\d)?"[^>]* viewBox="[\d.]+ [\d.]+ ([\d.]+) [\d.]+"(.*?)</svg>`)
	texts   = regexp.MustCompile(`(?s)<text [^>]*textLength="([\d.]+)"[^>]*font-size:([\d.]+)px[^>]*>([^<]*)<`)
)

// Small returns the texts that are smaller than least pixels, or wider than the column, in figures
// of a class that are scaled to a column of the given pixels. It returns how many texts it has
// measured, too.
func Small(page, class string, column, least float64) (small []string, measured int) {
	for _, f := range figures.FindAllStringSubmatch(page, -1) {
		for _, svg := range images.FindAllStringSubmatch(f[2], -1) {
			if svg[1] != class {
				continue
			}
			width, _ := strconv.ParseFloat(svg[2], 64)
			for _, text := range texts.FindAllStringSubmatch(svg[3], -1) {
				length, _ := strconv.ParseFloat(text[1], 64)
				size, _ := strconv.ParseFloat(text[2], 64)
				measured++
				if pixels := size * column / width; pixels < least || length > width {
					small = append(small, fmt.Sprintf("%s: %q has %.1f pixels and takes %.0f of %.0f", f[1], html.UnescapeString(text[3]), pixels, length, width))
				}
			}
		}
	}
	return small, measured
}
