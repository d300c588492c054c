package report

// The view: a few lines at the bottom of a terminal that show how far a run is, below its log. They
// follow from the run's record, whichever process writes that.

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// View draws on a terminal. The log is written to it.
//
// It changes no mode of the terminal, and the cursor rests at the start of the line below its
// lines. So nothing has to be restored when the program ends for any reason.
type View struct {
	w     io.Writer
	size  func() (columns, rows int)
	style Style
	stop  chan struct{}
	ended sync.WaitGroup

	mu     sync.Mutex
	text   []byte // an incomplete line of the log
	shown  []int  // widths of the lines on the terminal
	closed bool

	// continued receives when the process continues after it was stopped. The shell has written
	// below the lines since then, so the next ones begin at the cursor.
	continued <-chan os.Signal

	from   *record.Follower // nil: the run has not begun
	steps  int              // of the run
	began  time.Time
	recent record.Log // the last steps
	losses []float64  // of all steps
}

// NewView returns a view on the terminal w. size returns its current columns and rows.
func NewView(w io.Writer, size func() (columns, rows int), style Style) *View {
	return &View{w: w, size: size, style: style, stop: make(chan struct{})}
}

// Follow begins to show a run of some steps in a folder.
func (v *View) Follow(run string, steps int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	continued, stop := system.Continued()
	v.from, v.steps, v.began, v.continued = record.Follow(run), steps, time.Now(), continued
	v.ended.Go(func() {
		defer stop()
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
	end := bytes.LastIndexByte(text, '\n') + 1
	lines := append(v.text, text[:end]...)
	if v.text = append([]byte(nil), text[end:]...); end == 0 {
		v.text = append(lines, text...)
		return len(text), nil
	}
	return len(text), v.draw(lines)
}

// Close removes the lines from the terminal and leaves the log. Later text passes through.
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
		v.recent, v.losses = record.Log{}, nil
	}
	for _, l := range lines {
		if l.Step != nil {
			v.recent.Steps = append(v.recent.Steps[max(0, len(v.recent.Steps)-100):], *l.Step)
			v.losses = append(v.losses, float64(l.Step.Loss))
		} else if l.Done != nil {
			v.recent.Done = l.Done
		}
	}
}

// lines returns the lines for a terminal of the given width: progress, and the course of the loss.
func (v *View) lines(columns int) []string {
	if v.from == nil || v.recent.Done != nil {
		return nil
	}
	elapsed := Clock(time.Since(v.began)) + " so far"
	if len(v.recent.Steps) == 0 {
		return []string{row(columns, bar(0, columns), "starting", elapsed)}
	}
	s := v.recent.Steps[len(v.recent.Steps)-1]
	left := Clock(v.recent.Left(v.steps)) + " left"
	loss := "loss " + Loss(float64(s.Loss))
	return []string{
		row(columns, bar(float64(s.Step)/float64(v.steps), columns), left, fmt.Sprintf("%d/%d", s.Step, v.steps), elapsed),
		row(columns, loss, spark(v.losses, columns-len(loss)-2)),
	}
}

// row joins those fields that fit.
func row(columns int, fields ...string) (text string) {
	for i, f := range fields {
		if i > 0 {
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
func bar(share float64, columns int) string {
	percent := fmt.Sprintf(" %3.0f%%", 100*share)
	cells := max(min(30, columns/2-len(percent)), 0)
	full := int(min(share, 1) * float64(cells))
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + percent
}

// spark draws the course of values in one line, between the least and the greatest. A column is the
// mean of its steps.
func spark(values []float64, columns int) (text string) {
	columns = max(min(columns, len(values), 72), 0)
	means, low, high := make([]float64, columns), math.Inf(1), math.Inf(-1)
	for i := range means {
		part := values[i*len(values)/columns : (i+1)*len(values)/columns]
		for _, x := range part {
			means[i] += x / float64(len(part))
		}
		if Finite(means[i]) {
			low, high = min(low, means[i]), max(high, means[i])
		}
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	for _, x := range means {
		if Finite(x) {
			text += string(levels[int((x-low)/max(high-low, 1e-30)*float64(len(levels)-1)+0.5)])
		} else {
			text += "!"
		}
	}
	return text
}

// draw writes text to the log and the lines below it, in a single write so that the terminal never
// shows a part of them.
func (v *View) draw(text []byte) error {
	select {
	case <-v.continued:
		v.shown = v.shown[:0]
	default:
	}
	columns, rows := v.size()
	var b bytes.Buffer
	up := 0
	for _, width := range v.shown { // a terminal that became narrower has wrapped them
		up += max(1, (width+columns-1)/max(columns, 1))
	}
	if up > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", up)
	}
	b.Write(text)
	v.shown = v.shown[:0]
	if lines := v.lines(columns - 1); rows > len(lines) { // a full line could wrap
		for i, l := range lines {
			if v.shown = append(v.shown, utf8.RuneCountInString(l)); i == 0 {
				l = v.style.Good(l)
			}
			b.WriteString(l + "\n")
		}
	}
	_, err := v.w.Write(b.Bytes())
	return err
}
