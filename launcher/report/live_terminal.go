package report

// How the live view draws: a block of lines at the bottom of a terminal, with the log above it.

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"
	"unicode"
)

// screen is a terminal with a block of lines at its bottom. All other text scrolls by above it.
//
// It changes no mode of the terminal, and the cursor rests at the start of the line below the
// block. So nothing has to be restored when the program ends for any reason, and the next output
// begins on a line of its own.
type screen struct {
	w      io.Writer
	size   func() (columns, rows int)
	now    func() time.Time
	text   []byte // that is not written yet, perhaps with an incomplete line at its end
	shown  []int  // widths of the block's lines on the terminal
	drawn  time.Time
	closed bool

	// continued receives when the process continues after it was stopped. The shell has written
	// below the block since then, so the next block begins at the cursor.
	continued <-chan os.Signal
}

// drawEvery is the minimum time between two updates.
const drawEvery = 100 * time.Millisecond

// line is a line of the block and its style; nil: plain.
type line struct {
	text  string
	style func(string) string
}

// print adds text above the block and replaces the block, unless it has just done so.
func (s *screen) print(text []byte, block func(columns int) []line) error {
	if s.closed {
		_, err := s.w.Write(text)
		return err
	}
	s.text = append(s.text, text...)
	if now := s.now(); now.Sub(s.drawn) >= drawEvery {
		s.drawn = now
		return s.draw(bytes.LastIndexByte(s.text, '\n')+1, block)
	}
	return nil
}

// close removes the block from the terminal. Later text passes through.
func (s *screen) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.draw(len(s.text), func(int) []line { return nil })
}

// draw writes the first n bytes of the text and the block, in a single write so that the terminal
// never shows a partial block.
func (s *screen) draw(n int, block func(columns int) []line) error {
	select {
	case <-s.continued:
		s.shown = s.shown[:0]
	default:
	}
	columns, rows := s.size()
	lines := block(columns - 1) // a full line could wrap
	if n == 0 && len(lines) == 0 && len(s.shown) == 0 {
		return nil
	}
	const eraseBelow, eraseRight = "\x1b[J", "\x1b[K"
	var b bytes.Buffer
	before := len(s.shown)
	if up := s.occupied(columns); up > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", up)
	}
	if before > 0 && n > 0 {
		b.WriteString(eraseBelow)
	}
	b.Write(s.text[:n])
	s.text, s.shown = append(s.text[:0], s.text[n:]...), s.shown[:0]
	for _, l := range lines[:min(len(lines), max(rows-1, 0))] {
		text, width := fit(l.text, columns-1)
		if s.shown = append(s.shown, width); l.style != nil {
			text = l.style(text)
		}
		b.WriteString(text + eraseRight + "\n")
	}
	if before > 0 {
		b.WriteString(eraseBelow)
	}
	_, err := s.w.Write(b.Bytes())
	return err
}

// occupied returns the number of rows that the block occupies. A terminal that became narrower has
// wrapped its lines.
func (s *screen) occupied(columns int) (rows int) {
	for _, width := range s.shown {
		rows += max(1, (width+columns-1)/max(columns, 1))
	}
	return rows
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
