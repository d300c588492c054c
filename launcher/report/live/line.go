package live

import (
	"strings"
	"unicode"
)

// line is text in spans, each with what colours it.
type line []span

type span struct {
	text  string
	style func(string) string // nil: none
}

// cut returns the first columns of a line, and how many it has.
func (l line) cut(columns int) (text string, width int) {
	var b strings.Builder
	for _, s := range l {
		fits, n := fit(s.text, columns-width)
		if width += n; s.style != nil {
			fits = s.style(fits)
		}
		b.WriteString(fits)
	}
	return b.String(), width
}

// fit returns what of a text has room in so many columns, and the columns it takes.
func fit(text string, columns int) (string, int) {
	width := 0
	for i, r := range text {
		n := columnsOf(r)
		if width+n > columns {
			return text[:i], width
		}
		width += n
	}
	return text, width
}

// columnsOf is how many columns a character takes, or more: terminals differ on what they show
// wide, and a line must not wrap.
func columnsOf(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r):
		return 0
	case r >= 0x1100 && !(r >= 0x2190 && r <= 0x25ff):
		return 2
	}
	return 1
}

// wrap puts fields into lines of at most so many columns, two spaces between them.
func wrap(columns int, fields ...string) (lines []line) {
	row := ""
	for _, f := range fields {
		_, have := fit(row, 1<<30)
		_, more := fit(f, 1<<30)
		switch {
		case row == "":
			row = f
		case have+2+more <= columns:
			row += "  " + f
		default:
			lines = append(lines, line{{text: row}})
			row = f
		}
	}
	return append(lines, line{{text: row}})
}
