package main

// The blocks of a Markdown file, with the result files that mark their figures.

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// block is a table row, a list item, a paragraph or a code block.
type block struct {
	line    int // of its first line, from 1
	text    string
	results []string // from the root of the repository
	given   bool     // its figures are no measurements
	code    bool
}

const given = "given"

var (
	comment = regexp.MustCompile(`<!-- figures: (.*?) -->`)
	named   = regexp.MustCompile(`bench/results/[\w-]+(?:\.\w+)?`) // a file, or the folder that a longer path leads to
	item    = regexp.MustCompile(`^ *(?:[-*]|\d+\.) `)
)

// reader cuts a text into blocks.
type reader struct {
	all    []block
	mark   string // on a line of its own, for the blocks up to the next empty line outside of code
	open   bool   // the next line may continue the last block
	fenced bool
}

// blocks cuts a Markdown text into blocks.
func blocks(text string) []block {
	var r reader
	for i, line := range strings.Split(text, "\n") {
		r.read(i+1, line)
	}
	for i := range r.all {
		r.all[i].readMarks()
	}
	return r.all
}

func (r *reader) read(number int, line string) {
	trimmed := strings.TrimSpace(line)
	fence := strings.HasPrefix(trimmed, "```")
	inCode := r.open && r.all[len(r.all)-1].code
	code := r.fenced || fence || strings.HasPrefix(line, "    ") && (!r.open || inCode)
	alone := comment.FindStringSubmatch(line)
	switch {
	case trimmed == "" && !inCode:
		if r.open {
			r.mark, r.open = "", false
		}
	case trimmed == "" || r.open && code == inCode && !strings.HasPrefix(line, "|") && (code || !item.MatchString(line)):
		r.all[len(r.all)-1].text += "\n" + line
	case !code && alone != nil && alone[0] == trimmed:
		r.mark, r.open = alone[1], false
	default:
		if inCode {
			r.mark = ""
		}
		r.all = append(r.all, block{line: number, text: line, results: named.FindAllString(r.mark, -1), given: r.mark == given, code: code})
		r.open = true
	}
	r.fenced = r.fenced != fence
}

// readMarks adds the marks and links within a block.
func (b *block) readMarks() {
	if b.code {
		return
	}
	for _, match := range comment.FindAllStringSubmatch(b.text, -1) {
		b.given = b.given || match[1] == given
	}
	if !b.given {
		b.results = append(b.results, named.FindAllString(b.text, -1)...)
	}
	for i, name := range b.results {
		b.results[i] = path.Clean(name)
	}
	slices.Sort(b.results)
	b.results = slices.Compact(b.results)
}

// figures returns the figures of a block. All numbers of marked code count, and none of other code.
func (b block) figures() []figure {
	switch {
	case !b.code:
		return prose(item.ReplaceAllString(b.text, ""))
	case len(b.results) > 0:
		return numbers(b.text)
	}
	return nil
}

// measurement returns the first figure of a block that must be marked, or an empty string.
func (b block) measurement() string {
	if b.code {
		return ""
	}
	return measured.FindString(names.ReplaceAllString(b.text, " "))
}
