package report

// The live view: a few lines at the bottom of a terminal that show how a run goes, below the log.

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/events"
)

// Live is a [trainer.Watcher] that draws on a terminal. Other text is written to it.
type Live struct {
	watcher
	style Style

	mu         sync.Mutex
	began      time.Time // start of the run; zero: not yet known
	doing      string    // status until the first step
	step       events.Step
	at         time.Time // time of the last step
	validation string
	saved      string
	alarm      string
	screen     screen

	stop    chan struct{}
	stopped sync.WaitGroup
}

// NewLive returns a view on the terminal w. size returns its current columns and rows.
func NewLive(w io.Writer, size func() (columns, rows int), style Style) *Live {
	const tick = time.Second // at which clocks advance without events
	ticks := time.NewTicker(tick)
	continued, stop := system.Continued()
	l := newLive(w, size, style, time.Now)
	l.screen.continued = continued
	l.stopped.Go(func() {
		defer ticks.Stop()
		defer stop()
		l.watch(ticks.C)
	})
	return l
}

func newLive(w io.Writer, size func() (columns, rows int), style Style, now func() time.Time) *Live {
	l := &Live{style: style, screen: screen{w: w, size: size, now: now}, stop: make(chan struct{})}
	l.watcher = watcher{take: l.show, now: now}
	return l
}

// watch draws at every tick until the view is closed.
func (l *Live) watch(ticks <-chan time.Time) {
	for {
		select {
		case <-ticks:
			l.show(nil)
		case <-l.stop:
			return
		}
	}
}

// Write adds text to the log. Complete lines may appear with the next update.
func (l *Live) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(text), l.screen.print(text, l.lines)
}

// Close removes the live lines from the terminal and leaves the log. It may be called more than
// once.
func (l *Live) Close() error {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.stopped.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.screen.close()
}

// show prints an event to the log and draws. Write errors are ignored: a run must not end because
// its terminal is gone.
func (l *Live) show(event any) {
	if _, over := event.(events.Done); over {
		l.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	columns, _ := l.screen.size()
	var text bytes.Buffer
	deliver(Console{W: &text, Width: columns, Style: l.style}, event)
	l.update(event)
	l.screen.print(text.Bytes(), l.lines)
}

// update takes from an event what the lines show.
func (l *Live) update(event any) {
	now := l.screen.now()
	switch e := event.(type) {
	case events.Start:
		l.began, l.doing = now, "starting"
		if e.From == 0 {
			l.doing = "first evaluation"
		}
		l.step.Step, l.step.Steps = e.From, e.Config.Steps
	case events.Step:
		l.step, l.at, l.doing = e, now, ""
		if l.began.IsZero() { // this launcher joined late
			l.began = now.Add(-e.Elapsed)
		}
		if e.Skipped {
			l.alarm = fmt.Sprintf("step %d was skipped, %s so far", e.Step, Plural(e.SkippedTotal, "step"))
		}
	case between:
		l.update(events.Step(e))
	case events.Eval:
		l.validation = fmt.Sprintf("validation %.4f", e.Loss)
		if l.doing != "" {
			l.doing = "first step"
		}
	case events.Saved:
		l.saved = fmt.Sprintf("saved step %d", e.Step)
	case events.Alarm:
		l.alarm = strings.Join(strings.Fields(Printable(e.Text)), " ")
	}
}

// lines returns the live lines for a terminal of the given width.
func (l *Live) lines(columns int) (all []line) {
	if l.began.IsZero() {
		return nil
	}
	add := func(style func(string) string, fields ...string) {
		for text := range strings.SplitSeq(wrap(fields, columns), "\n") {
			all = append(all, line{text, style})
		}
	}
	s, now := l.step, l.screen.now()
	doing := l.doing
	if doing == "" {
		doing = Clock(max(s.ETA-now.Sub(l.at), 0)) + " left"
	}
	share := float64(s.Step) / float64(max(s.Steps, 1))
	add(l.style.Good, bar(share, columns), doing, fmt.Sprintf("%d/%d", s.Step, s.Steps), Clock(now.Sub(l.began))+" so far")
	if l.doing == "" {
		fields := []string{fmt.Sprintf("loss %.4f", s.Loss)}
		if l.validation != "" {
			fields = append(fields, l.validation)
		}
		add(nil, append(fields, Thousands(s.TokensPerSec)+" tokens/s", fmt.Sprintf("mfu %.1f%%", 100*s.MFU), "memory "+system.Bytes(s.Memory),
			fmt.Sprintf("grad norm %.3f", s.GradNorm), fmt.Sprintf("lr %.2e", s.LR), fmt.Sprintf("imbalance %.2f", s.Imbalance))...)
	}
	if l.saved != "" {
		add(l.style.Dim, l.saved)
	}
	if l.alarm != "" {
		add(l.style.Bad, "ALARM "+l.alarm)
	}
	return all
}

// bar returns a progress bar and its percentage.
func bar(share float64, columns int) string {
	const most = 30
	percent := fmt.Sprintf(" %3.0f%%", 100*share)
	cells := max(min(most, columns-len(percent)), 0)
	full := int(min(share, 1) * float64(cells))
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + percent
}
