package tasks

// Functions of Python's strings that differ from Go's.

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// space reports whether Python takes r for white space. Unlike Go, it does so for the separators of
// ASCII.
func space(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// strip is str.strip.
func strip(text string) string { return strings.TrimFunc(text, space) }

// rstrip is str.rstrip.
func rstrip(text string) string { return strings.TrimRightFunc(text, space) }

// capitalize is str.capitalize: the first character becomes upper case, all others lower case.
func capitalize(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	lower := cases.Lower(language.Und)
	first := cases.Title(language.Und).String(text[:size])
	return first + strings.TrimPrefix(lower.String(text), lower.String(text[:size]))
}
