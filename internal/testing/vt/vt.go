// Package vt is a model of a terminal for tests: it turns the output of a program into the visible
// screen.
package vt

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Terminal is a screen of characters of one column each. It supports the control sequences that
// this project writes, and records any other in Err.
type Terminal struct {
	Columns, Rows int
	Err           error    // the first unknown sequence
	Styles        []string // requested styles, in order: "1;31", "0", ...

	style   string // of what is written next
	rows    []row  // all rows, including those that have scrolled by
	at      int    // row of the cursor
	column  int
	pending []byte // an incomplete sequence
}

// row is one row of characters. wrapped says that the text continues in the next row.
type row struct {
	text    []Cell
	wrapped bool
}

// Cell is a character with the style that was requested for it, such as 1;31; empty: none.
type Cell struct {
	Rune  rune
	Style string
}

// New returns an empty terminal.
func New(columns, rows int) *Terminal {
	return &Terminal{Columns: columns, Rows: rows, rows: make([]row, 1)}
}

// Write implements [io.Writer].
func (t *Terminal) Write(b []byte) (int, error) {
	t.pending = append(t.pending, b...)
	for len(t.pending) > 0 {
		n := t.next(t.pending)
		if n == 0 {
			break // it is incomplete
		}
		t.pending = t.pending[n:]
	}
	return len(b), nil
}

// next processes one character or sequence and returns its length; 0 if it is incomplete.
func (t *Terminal) next(b []byte) int {
	switch {
	case b[0] == '\r':
		t.column = 0
	case b[0] == '\n': // as a terminal driver does
		t.column = 0
		t.down(false)
	case b[0] == 0x1b:
		return t.sequence(b)
	case b[0] < ' ':
		t.fail("control character %#x", b[0])
	default:
		if !utf8.FullRune(b) {
			return 0
		}
		r, n := utf8.DecodeRune(b)
		t.put(r)
		return n
	}
	return 1
}

// sequence processes a sequence that begins with ESC [.
func (t *Terminal) sequence(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	end := 2
	for end < len(b) && (b[end] >= '0' && b[end] <= '9' || b[end] == ';') {
		end++
	}
	if end == len(b) && b[1] == '[' {
		return 0
	}
	if b[1] != '[' {
		t.fail("sequence %q", b[:2])
		return 2
	}
	argument := string(b[2:end])
	n, _ := strconv.Atoi(argument)
	switch {
	case b[end] == 'A':
		t.at = max(t.at-max(n, 1), t.top())
	case b[end] == 'K' && argument == "":
		t.cut(t.at, t.column)
	case b[end] == 'J' && argument == "":
		t.cut(t.at, t.column)
		t.rows = t.rows[:t.at+1]
	case b[end] == 'm':
		t.Styles = append(t.Styles, argument)
		if t.style = argument; argument == "0" {
			t.style = ""
		}
	default:
		t.fail("sequence %q", b[:end+1])
	}
	return end + 1
}

func (t *Terminal) fail(format string, args ...any) {
	if t.Err == nil {
		t.Err = fmt.Errorf("unknown "+format, args...)
	}
}

// top returns the first row on the screen. The rows above it can no longer change.
func (t *Terminal) top() int { return max(len(t.rows)-t.Rows, 0) }

func (t *Terminal) down(wrapped bool) {
	t.rows[t.at].wrapped = wrapped
	if t.at++; t.at == len(t.rows) {
		t.rows = append(t.rows, row{})
	}
}

func (t *Terminal) put(r rune) {
	if t.column == t.Columns {
		t.column = 0
		t.down(true)
	}
	line := &t.rows[t.at]
	for len(line.text) <= t.column {
		line.text = append(line.text, Cell{Rune: ' '})
	}
	line.text[t.column] = Cell{r, t.style}
	t.column++
}

func (t *Terminal) cut(at, column int) {
	line := &t.rows[at]
	line.text = line.text[:min(len(line.text), column)]
	line.wrapped = false
}

// Resize changes the size. As on most terminals, text that no longer fits its row wraps, and
// wrapped text is joined. The cursor must be at the start of a row.
func (t *Terminal) Resize(columns, rows int) {
	var all []row
	at := 0
	for i := 0; i < len(t.rows); i++ {
		if i == t.at {
			at = len(all)
		}
		text := t.rows[i].text
		for t.rows[i].wrapped && i+1 < len(t.rows) {
			i++
			text = append(text[:len(text):len(text)], t.rows[i].text...)
		}
		for len(text) > columns {
			all = append(all, row{text[:columns:columns], true})
			text = text[columns:]
		}
		all = append(all, row{text: text})
	}
	t.Columns, t.Rows, t.rows, t.at = columns, rows, all, at
}

// Screen returns the rows on the screen, without empty ones at its end.
func (t *Terminal) Screen() string { return strings.TrimRight(join(t.rows[t.top():]), "\n") }

// All returns Screen together with the rows that have scrolled by.
func (t *Terminal) All() string { return strings.TrimRight(join(t.rows), "\n") }

// Cursor returns the column of the cursor, and the text of its row.
func (t *Terminal) Cursor() (column int, text string) { return t.column, t.rows[t.at].String() }

// Cells returns the characters on the screen, row by row.
func (t *Terminal) Cells() (rows [][]Cell) {
	for _, r := range t.rows[t.top():] {
		rows = append(rows, r.text)
	}
	return rows
}

func (r row) String() string {
	var b strings.Builder
	for _, c := range r.text {
		b.WriteRune(c.Rune)
	}
	return b.String()
}

func join(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.TrimRight(r.String(), " ") + "\n")
	}
	return b.String()
}
