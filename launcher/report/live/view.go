// Package live shows a run on a terminal while it goes on: a few lines at the bottom that are drawn
// again and again, and above them the log, which scrolls by.
package live

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// View is a [trainer.Watcher] that draws on a terminal.
type View struct {
	screen *Screen
	style  report.Style
	size   func() (columns, rows int)
	now    func() time.Time

	mu      sync.Mutex
	began   time.Time // when the run did; zero: not yet
	doing   string    // until the first step has come
	step    trainer.Step
	at      time.Time // when step came
	losses  history
	heldOut *trainer.Eval
	saved   string
	alarm   string

	stop    chan struct{}
	stopped sync.WaitGroup
}

// tick is how often the clocks move when nothing is reported.
const tick = time.Second

// New returns a view on the terminal w, of the columns and rows that size returns at the time.
func New(w io.Writer, size func() (columns, rows int), style report.Style) *View {
	v := newView(w, size, style, time.Now)
	ticks := time.NewTicker(tick)
	v.stopped.Go(func() {
		defer ticks.Stop()
		v.watch(ticks.C)
	})
	return v
}

func newView(w io.Writer, size func() (columns, rows int), style report.Style, now func() time.Time) *View {
	v := &View{style: style, size: size, now: now, stop: make(chan struct{})}
	v.screen = &Screen{w: w, size: size, now: now}
	return v
}

// Log is where other text goes that is for the same terminal.
func (v *View) Log() io.Writer { return v.screen }

// watch draws at every tick until the view is closed.
func (v *View) watch(ticks <-chan time.Time) {
	for {
		select {
		case <-ticks:
			v.change(nil, nil)
		case <-v.stop:
			return
		}
	}
}

// Close takes the live lines off the terminal and leaves the log. It may be called more than once.
func (v *View) Close() error {
	v.mu.Lock()
	select {
	case <-v.stop:
	default:
		close(v.stop)
	}
	v.mu.Unlock()
	v.stopped.Wait()
	return v.screen.close()
}

// change prints something, makes a change, and draws both; each may be nil. A terminal that has
// gone is no reason to end a run.
func (v *View) change(print func(log report.Console), do func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	columns, _ := v.size()
	var above bytes.Buffer
	if print != nil {
		print(report.Console{W: &above, Width: columns, Style: v.style})
	}
	if do != nil {
		do()
	}
	v.screen.show(above.Bytes(), v.lines(columns-1))
}

// Start implements [trainer.Reporter], as the other methods do.
func (v *View) Start(s trainer.Start) {
	v.change(func(log report.Console) { log.Start(s) }, func() {
		v.began, v.doing = v.now(), "starting"
		if s.From == 0 {
			v.doing = "first evaluation"
		}
		v.step.Step, v.step.Steps = s.From, s.Config.Steps
	})
}

// Step prints a log line and shows it.
func (v *View) Step(s trainer.Step) {
	v.change(func(log report.Console) { log.Step(s) }, func() { v.made(s) })
}

// Wants implements [trainer.Watcher].
func (v *View) Wants() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now().Sub(v.at) >= drawEvery
}

// Between shows a step.
func (v *View) Between(s trainer.Step) { v.change(nil, func() { v.made(s) }) }

func (v *View) made(s trainer.Step) {
	s.Loads = append(v.step.Loads[:0], s.Loads...)
	v.step, v.at, v.doing = s, v.now(), ""
	v.losses.add(s.Loss)
	if v.began.IsZero() { // this launcher has not seen the beginning
		v.began = v.at.Add(-s.Elapsed)
	}
	if s.Skipped {
		v.alarm = fmt.Sprintf("step %d was skipped, %s so far", s.Step, report.Plural(s.SkippedTotal, "step"))
	}
}

// Eval prints a held-out loss and keeps it in view.
func (v *View) Eval(e trainer.Eval) {
	v.change(func(log report.Console) { log.Eval(e) }, func() {
		v.heldOut = &e
		if v.doing != "" {
			v.doing = "first step"
		}
	})
}

// Saved prints where a checkpoint is.
func (v *View) Saved(s trainer.Saved) {
	v.change(func(log report.Console) { log.Saved(s) }, func() { v.saved = fmt.Sprintf("saved step %d", s.Step) })
}

// Alarm prints what went wrong and keeps it in view.
func (v *View) Alarm(a trainer.Alarm) {
	v.change(func(log report.Console) { log.Alarm(a) }, func() { v.alarm = report.Printable(a.Text) })
}

// Profile prints where the time went.
func (v *View) Profile(p trainer.Profile) {
	v.change(func(log report.Console) { log.Profile(p) }, nil)
}

// Done ends the view with the run's summary.
func (v *View) Done(d trainer.Done) {
	v.Close()
	v.change(func(log report.Console) { log.Done(d) }, nil)
}

// lines is the picture, for a terminal of so many columns.
func (v *View) lines(columns int) []line {
	if v.began.IsZero() {
		return nil
	}
	all := v.progress(columns)
	if v.doing != "" {
		return append(all, v.notes()...)
	}
	s := v.step
	all = append(all, v.loss(columns))
	all = append(all, wrap(columns,
		report.Thousands(s.TokensPerSec)+" tokens/s", fmt.Sprintf("mfu %.1f%%", 100*s.MFU),
		fmt.Sprintf("memory %s", system.Bytes(s.Memory)), fmt.Sprintf("grad norm %.3f", s.GradNorm), fmt.Sprintf("lr %.2e", s.LR),
	)...)
	if blocks := loads(s.Loads, s.Layers, columns-len("experts ")); blocks != "" {
		all = append(all, line{{"experts ", v.style.Dim}, {text: blocks}})
	}
	return append(all, v.notes()...)
}

// progress is the bar and what is said of it, beside it or, on a narrow terminal, below.
func (v *View) progress(columns int) []line {
	s := v.step
	now := v.now()
	share := float64(s.Step) / float64(max(s.Steps, 1))
	elapsed := now.Sub(v.began)
	notes := []string{fmt.Sprintf("%3.0f%%", 100*share)}
	if v.doing != "" {
		notes = append(notes, v.doing)
	} else {
		notes = append(notes, report.Clock(max(s.ETA-now.Sub(v.at), 0))+" left")
	}
	notes = append(notes, strconv.Itoa(s.Step)+"/"+strconv.Itoa(s.Steps), report.Clock(elapsed)+" so far")
	const least, most = 6, 40
	text := " " + notes[0]
	notes = notes[1:]
	for len(notes) > 0 && least+len(text)+2+len(notes[0]) <= columns {
		text += "  " + notes[0]
		notes = notes[1:]
	}
	full, empty := bar(share, min(max(columns-len(text), least), most))
	all := []line{{{full, v.style.Good}, {empty, v.style.Dim}, {text: text}}}
	if len(notes) > 0 {
		all = append(all, wrap(columns, notes...)...)
	}
	return all
}

// loss is the newest loss, how it went, and the newest held-out loss.
func (v *View) loss(columns int) line {
	const most = mostMeans / 2
	text := fmt.Sprintf("%.4f", v.step.Loss)
	room := columns - len("loss ") - len(text) - 2
	heldOut := ""
	if v.heldOut != nil {
		heldOut = fmt.Sprintf("  held-out %.4f", v.heldOut.Loss)
	}
	if room-len(heldOut) < 8 {
		heldOut = ""
	}
	spark := v.losses.sparkline(min(room-len(heldOut), most))
	return line{{"loss ", v.style.Dim}, {text, v.style.Bold}, {text: "  "}, {spark, v.style.Good}, {text: heldOut}}
}

// notes are the last checkpoint and the last alarm.
func (v *View) notes() (all []line) {
	if v.saved != "" {
		all = append(all, line{{v.saved, v.style.Dim}})
	}
	if v.alarm != "" {
		all = append(all, line{{"ALARM ", v.style.Bad}, {text: v.alarm}})
	}
	return all
}
