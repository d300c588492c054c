package main

// Where a figure of one or two digits must stand. Such a number is found somewhere in most result
// files, so the line with it must be about the same thing as the text that quotes it.

import (
	"regexp"
	"strings"
)

// line is a line of a result file.
type line struct {
	figures []figure
	words   map[string]bool
	heading map[string]bool // words of the first line of its paragraph
}

var (
	word   = regexp.MustCompile(`\pL{3,}|\pL{2,}\d+`)
	common = strings.Fields("the and for with from are that than over per but not has thi all it one two see txt bench result")
)

// words returns the words of three letters or more, and such as BF16, except the most common ones.
// A plural counts as its singular.
func words(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range word.FindAllString(strings.ToLower(text), -1) {
		all[strings.TrimSuffix(w, "s")] = true
	}
	for _, w := range common {
		delete(all, w)
	}
	return all
}

// lines returns the lines of a paragraph of a result file.
func lines(paragraph string) (all []line) {
	paragraph = strings.Trim(paragraph, "\n")
	first, _, _ := strings.Cut(paragraph, "\n")
	heading := words(first)
	for text := range strings.SplitSeq(paragraph, "\n") {
		all = append(all, line{results(text), words(text), heading})
	}
	return all
}

// short reports whether a figure has so few digits that it is found in most files.
func (f figure) short() bool { return len(f.text) < 3 }

// near returns the figures of the lines that are about the same as a text: they share a word with
// it or one of its longer figures, or the heading of their paragraph shares two words.
func near(all []line, text map[string]bool, figures []figure) (found []figure) {
	for _, l := range all {
		if shared(l.words, text) > 0 || shared(l.heading, text) > 1 || l.hasOne(figures) {
			found = append(found, l.figures...)
		}
	}
	return found
}

func shared(a, b map[string]bool) (n int) {
	for w := range a {
		if b[w] {
			n++
		}
	}
	return n
}

// hasOne reports whether one of the longer figures stands on the line.
func (l line) hasOne(figures []figure) bool {
	for _, f := range figures {
		if !f.short() && f.among(l.figures) {
			return true
		}
	}
	return false
}
