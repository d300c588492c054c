package spmd

// What ranks print: whole lines, which do not mix, and the last ones are kept.

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// lines passes on whole lines, with a prefix.
type lines struct {
	w      io.Writer
	mu     *sync.Mutex // of w
	prefix string
	rest   []byte // a line without its end
}

// Write implements [io.Writer].
func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.mu.Lock()
		_, err := io.WriteString(l.w, l.prefix+string(line)+"\n")
		l.mu.Unlock()
		l.rest = rest
		if err != nil {
			return 0, err
		}
	}
}

// flush passes on a last line that has no end.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.Write([]byte("\n"))
	}
}

// tail passes on what is written, and keeps the end of it.
type tail struct {
	to     io.Writer
	mu     sync.Mutex
	last   []byte
	frozen bool
}

const (
	tailBytes = 8 << 10
	tailLines = 10
)

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	if !t.frozen {
		t.last = append(t.last, b...)
	}
	if n := len(t.last); n > tailBytes {
		t.last = append([]byte{}, t.last[n-tailBytes:]...)
	}
	t.mu.Unlock()
	return t.to.Write(b)
}

// freeze keeps what has been written so far.
func (t *tail) freeze() {
	t.mu.Lock()
	t.frozen = true
	t.mu.Unlock()
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.last))
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	return all[max(0, len(all)-tailLines):]
}
