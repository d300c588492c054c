// Package live shows the progress of a run on a terminal: a few lines at the bottom that are
// redrawn, and the log that scrolls by above them.
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

	mu         sync.Mutex
	began      time.Time // start of the run; zero: not yet known
	doing      string    // status until the first step
	step       trainer.Step
	at         time.Time // time of the last step
	losses     history
	validation *trainer.Eval
	saved      string
	alarm      string

	stop    chan struct{}
	stopped sync.WaitGroup
}

// tick is the interval at which clocks advance without events.
const tick = time.Second

// New returns a view on the terminal w. size returns its current columns and rows.
func New(w io.Writer, size func() (columns, rows int), style report.Style) *View {
	v := newView(w, size, style, time.Now)
	ticks := time.NewTicker(tick)
	continued, stop := continuations()
	v.screen.continued = continued
	v.stopped.Go(func() {
		defer ticks.Stop()
		defer stop()
		v.watch(ticks.C)
	})
	return v
}

func newView(w io.Writer, size func() (columns, rows int), style report.Style, now func() time.Time) *View {
	v := &View{style: style, size: size, now: now, stop: make(chan struct{})}
	v.screen = &Screen{w: w, size: size, now: now}
	return v
}

// Log returns the writer for other text on the same terminal.
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

// Close removes the live lines from the terminal and leaves the log. It may be called more than
// once.
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

// change prints to the log and updates the state, and either may be nil, and then draws. Write
// errors are ignored: a run must not end because its terminal is gone.
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
	v.losses.add(float64(s.Loss))
	if v.began.IsZero() { // this launcher joined late
		v.began = v.at.Add(-s.Elapsed)
	}
	if s.Skipped {
		v.alarm = fmt.Sprintf("step %d was skipped, %s so far", s.Step, report.Plural(s.SkippedTotal, "step"))
	}
}

// Eval prints a validation loss and shows it in the view.
func (v *View) Eval(e trainer.Eval) {
	v.change(func(log report.Console) { log.Eval(e) }, func() {
		v.validation = &e
		if v.doing != "" {
			v.doing = "first step"
		}
	})
}

// Sample prints text that the model wrote.
func (v *View) Sample(s trainer.Sample) {
	v.change(func(log report.Console) { log.Sample(s) }, nil)
}

// Saved prints the path of a checkpoint.
func (v *View) Saved(s trainer.Saved) {
	v.change(func(log report.Console) { log.Saved(s) }, func() { v.saved = fmt.Sprintf("saved step %d", s.Step) })
}

// Alarm prints a problem and shows it in the view.
func (v *View) Alarm(a trainer.Alarm) {
	v.change(func(log report.Console) { log.Alarm(a) }, func() { v.alarm = report.Printable(a.Text) })
}

// Stopping prints when a run that was asked to stop will do so.
func (v *View) Stopping(s trainer.Stopping) {
	v.change(func(log report.Console) { log.Stopping(s) }, nil)
}

// Profile prints the time of a step by kind of work.
func (v *View) Profile(p trainer.Profile) {
	v.change(func(log report.Console) { log.Profile(p) }, nil)
}

// Done ends the view with the run's summary.
func (v *View) Done(d trainer.Done) {
	v.Close()
	v.change(func(log report.Console) { log.Done(d) }, nil)
}

// lines returns the live lines for a terminal of the given width.
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

// progress returns the progress bar and its text, side by side or, on a narrow terminal, one below
// the other.
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

// loss returns the newest training loss, its sparkline and the newest validation loss.
func (v *View) loss(columns int) line {
	const most = mostMeans / 2
	text := fmt.Sprintf("%.4f", v.step.Loss)
	room := columns - len("loss ") - len(text) - 2
	validation := ""
	if v.validation != nil {
		validation = fmt.Sprintf("  validation %.4f", v.validation.Loss)
	}
	if room-len(validation) < 8 {
		validation = ""
	}
	spark := v.losses.sparkline(min(room-len(validation), most))
	return line{{"loss ", v.style.Dim}, {text, v.style.Bold}, {text: "  "}, {spark, v.style.Good}, {text: validation}}
}

// notes returns the last checkpoint and the last alarm.
func (v *View) notes() (all []line) {
	if v.saved != "" {
		all = append(all, line{{v.saved, v.style.Dim}})
	}
	if v.alarm != "" {
		all = append(all, line{{"ALARM ", v.style.Bad}, {text: v.alarm}})
	}
	return all
}
