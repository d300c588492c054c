package live

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// Screen keeps a block of lines below everything else that is written to a terminal, which scrolls
// by above it.
//
// It changes no mode of the terminal, and the cursor rests at the start of the line under the
// block: nothing has to be restored, whatever ends the program, and whoever writes there next
// begins on a line of its own.
type Screen struct {
	mu     sync.Mutex
	w      io.Writer
	size   func() (columns, rows int)
	now    func() time.Time
	block  []line // that is to be shown
	shown  []int  // columns of the lines on the terminal
	above  []byte // whole lines that have not been written yet
	rest   []byte // a line without its end
	drawn  time.Time
	closed bool
}

// drawEvery is the least time between two pictures.
const drawEvery = 100 * time.Millisecond

// Write adds whole lines above the block. They may come a moment later: with the next picture.
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

// show adds lines above the block and replaces it, at once.
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

// close takes the block off the terminal. What is written later passes through.
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

// draw writes what there is to see, unless it has just done so.
func (s *Screen) draw() error {
	if now := s.now(); now.Sub(s.drawn) >= drawEvery {
		s.drawn = now
		return s.paint()
	}
	return nil
}

// paint is one write, so that a terminal never shows half a picture.
func (s *Screen) paint() error {
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

// occupied returns the rows of what is shown. A terminal that has become narrower has wrapped
// lines.
func (s *Screen) occupied(columns int) (rows int) {
	for _, width := range s.shown {
		rows += max(1, (width+columns-1)/max(columns, 1))
	}
	return rows
}
