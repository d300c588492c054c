package live

import (
	"strings"
	"unicode"
)

// line is a line of text in spans, each with its style.
type line []span

type span struct {
	text  string
	style func(string) string // nil: plain
}

// cut returns the first columns of a line and their width.
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

// fit returns the beginning of a text that fits in the given columns, and its width.
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

// columnsOf returns an upper bound of the width of a character. Terminals differ on wide
// characters, and a line must not wrap.
func columnsOf(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r):
		return 0
	case r >= 0x1100 && !(r >= 0x2190 && r <= 0x25ff):
		return 2
	}
	return 1
}

// wrap arranges fields in lines of at most the given columns, separated by two spaces.
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
