package spmd

// The output of ranks: whole lines, which do not mix. The last lines are stored.

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// maxLine is the maximum length of a line, in bytes. Longer lines are passed on in pieces.
const maxLine = 64 << 10

// lines passes on whole lines.
type lines struct {
	w    io.Writer
	mu   *sync.Mutex // protects w
	rest []byte      // an incomplete line
}

// Write implements [io.Writer].
func (l *lines) Write(b []byte) (int, error) {
	looked := min(len(l.rest), maxLine) // already searched for an end of line
	l.rest = append(l.rest, b...)
	for {
		line := l.rest[:min(len(l.rest), maxLine)]
		if end := bytes.IndexByte(line[looked:], '\n'); end >= 0 {
			line = line[:looked+end]
		} else if len(line) < maxLine {
			return len(b), nil
		}
		looked = 0
		l.mu.Lock()
		_, err := io.WriteString(l.w, string(line)+"\n")
		l.mu.Unlock()
		l.rest = bytes.TrimPrefix(l.rest[len(line):], []byte("\n"))
		if err != nil {
			return 0, err
		}
	}
}

// flush passes on an incomplete last line.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.Write([]byte("\n"))
	}
}

// tail passes on what is written, and stores the end of it.
type tail struct {
	to   io.Writer
	mu   sync.Mutex
	last []byte
}

const (
	tailBytes = 8 << 10
	tailLines = 10
)

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, b...)
	if n := len(t.last); n > 2*tailBytes {
		t.last = append([]byte{}, t.last[n-tailBytes:]...)
	}
	t.mu.Unlock()
	return t.to.Write(b)
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.last[max(0, len(t.last)-tailBytes):]))
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	return all[max(0, len(all)-tailLines):]
}
