package live

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Screen keeps a block of lines at the bottom of a terminal; everything else that is written
// scrolls by above it.
//
// It changes no mode of the terminal, and the cursor rests at the start of the line below the
// block. So nothing has to be restored when the program ends for any reason, and the next output
// begins on a line of its own.
type Screen struct {
	mu     sync.Mutex
	w      io.Writer
	size   func() (columns, rows int)
	now    func() time.Time
	block  []line // to show next
	shown  []int  // widths of the lines on the terminal
	above  []byte // complete lines that are not written yet
	rest   []byte // an incomplete line
	drawn  time.Time
	closed bool

	// continued receives when the process continues after it was stopped. The shell has written
	// below the block since then, so the next block begins at the cursor.
	continued <-chan os.Signal
}

// drawEvery is the minimum time between two updates.
const drawEvery = 100 * time.Millisecond

// Write adds complete lines above the block. They may appear with the next update.
func (s *Screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.w.Write(b)
	}
	s.add(b)
	return len(b), s.draw()
}

func (s *Screen) add(b []byte) {
	s.rest = append(s.rest, b...)
	if end := bytes.LastIndexByte(s.rest, '\n'); end >= 0 {
		s.above = append(s.above, s.rest[:end+1]...)
		s.rest = append(s.rest[:0], s.rest[end+1:]...)
	}
}

// show adds lines above the block and replaces the block at once.
func (s *Screen) show(above []byte, block []line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_, err := s.w.Write(above)
		return err
	}
	s.add(above)
	s.block = block
	return s.draw()
}

// close removes the block from the terminal. Later output passes through.
func (s *Screen) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.above = append(s.above, s.rest...)
	s.block, s.closed, s.drawn = nil, true, time.Time{}
	return s.draw()
}

// draw updates the terminal, unless it has just done so.
func (s *Screen) draw() error {
	if now := s.now(); now.Sub(s.drawn) >= drawEvery {
		s.drawn = now
		return s.paint()
	}
	return nil
}

// paint updates the terminal in a single write, so that it never shows a partial block.
func (s *Screen) paint() error {
	select {
	case <-s.continued:
		s.shown = s.shown[:0]
	default:
	}
	if len(s.above) == 0 && len(s.block) == 0 && len(s.shown) == 0 {
		return nil
	}
	columns, rows := s.size()
	var b bytes.Buffer
	if up := s.occupied(columns); up > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", up)
	}
	const eraseBelow, eraseRight = "\x1b[J", "\x1b[K"
	if len(s.shown) > 0 && len(s.above) > 0 {
		b.WriteString(eraseBelow)
	}
	b.Write(s.above)
	before := len(s.shown)
	s.above, s.shown = s.above[:0], s.shown[:0]
	for _, l := range s.block[:min(len(s.block), max(rows-1, 0))] {
		text, width := l.cut(columns - 1) // a full line could wrap
		b.WriteString(text)
		b.WriteString(eraseRight + "\n")
		s.shown = append(s.shown, width)
	}
	if before > 0 {
		b.WriteString(eraseBelow)
	}
	_, err := s.w.Write(b.Bytes())
	return err
}

// occupied returns the number of rows that the block occupies. A terminal that became narrower has
// wrapped its lines.
func (s *Screen) occupied(columns int) (rows int) {
	for _, width := range s.shown {
		rows += max(1, (width+columns-1)/max(columns, 1))
	}
	return rows
}
