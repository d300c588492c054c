package report

// The view: a line at the bottom of a terminal that shows how far a run is, below its log. It
// follows from the run's record, whichever process writes that.

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"spmoe/launcher/record"
)

// View draws on a terminal. The log is written to it.
//
// It changes no mode of the terminal, and the cursor rests at the start of its line. So nothing has
// to be restored when the program ends for any reason.
type View struct {
	w     io.Writer
	width func() int // columns of the terminal
	style Style
	stop  chan struct{}
	ended sync.WaitGroup

	mu     sync.Mutex
	text   []byte // an incomplete line of the log
	closed bool

	from   *record.Follower // nil: the run has not begun
	steps  int              // of the run
	began  time.Time
	recent record.Log // the last steps
}

// clearLine removes the line at whose start the cursor is.
const clearLine = "\r\x1b[J"

// NewView returns a view on the terminal w. width returns its current columns.
func NewView(w io.Writer, width func() int, style Style) *View {
	return &View{w: w, width: width, style: style, stop: make(chan struct{})}
}

// Follow begins to show a run of some steps in a folder.
func (v *View) Follow(run string, steps int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.from, v.steps, v.began = record.Follow(run), steps, time.Now()
	v.ended.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				v.mu.Lock()
				v.update()
				v.draw(nil) // a run must not end because its terminal is gone
				v.mu.Unlock()
			case <-v.stop:
				return
			}
		}
	})
}

// Write adds text to the log. A line appears when it is complete.
func (v *View) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return v.w.Write(text)
	}
	lines := append(v.text, text...)
	end := bytes.LastIndexByte(lines, '\n') + 1
	v.text = bytes.Clone(lines[end:])
	if end == 0 {
		return len(text), nil
	}
	return len(text), v.draw(lines[:end])
}

// Close removes the line from the terminal and leaves the log. Later text passes through.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	close(v.stop)
	v.mu.Unlock()
	v.ended.Wait()
	v.mu.Lock()
	v.from = nil
	return v.draw(v.text)
}

// update reads what is new in the record. What cannot be read yet is read later.
func (v *View) update() {
	lines, again, err := v.from.Next()
	if err != nil {
		return
	}
	if again {
		v.recent = record.Log{}
	}
	for _, l := range lines {
		if l.Step != nil {
			v.recent.Steps = append(v.recent.Steps[max(0, len(v.recent.Steps)-100):], *l.Step)
		} else if l.Done != nil {
			v.recent.Done = l.Done
		}
	}
}

// line returns as much of the progress as fits some columns.
func (v *View) line(columns int) (text string) {
	if v.from == nil || v.recent.Done != nil {
		return ""
	}
	fields := []string{bar(0), "starting"}
	if n := len(v.recent.Steps); n > 0 {
		s := v.recent.Steps[n-1]
		fields = []string{
			bar(float64(s.Step) / float64(v.steps)), Clock(v.recent.Left(v.steps)) + " left",
			fmt.Sprintf("%d/%d", s.Step, v.steps), fmt.Sprintf("loss %.4f", s.Loss),
		}
	}
	for _, f := range append(fields, Clock(time.Since(v.began))+" so far") {
		if text != "" {
			f = "  " + f
		}
		if utf8.RuneCountInString(text+f) > columns {
			break
		}
		text += f
	}
	return text
}

// bar returns a progress bar and its percentage.
func bar(share float64) string {
	const cells = 20
	full := int(min(share, 1) * cells)
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + fmt.Sprintf(" %3.0f%%", 100*share)
}

// draw writes text to the log and the line below it, in a single write so that the terminal never
// shows a part of them.
func (v *View) draw(text []byte) error {
	var b bytes.Buffer
	b.WriteString(clearLine)
	b.Write(text)
	if line := v.line(v.width() - 1); line != "" { // a full line could wrap
		b.WriteString(v.style.Good(line) + "\r")
	}
	_, err := v.w.Write(b.Bytes())
	return err
}
