package report

// How a rank process reports to the launcher, which draws. An event is a line of the rank's output
// that begins with a mark. If the process is replaced during the run, its replacement sends the
// lines.

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"io"
	"time"

	"spmoe/launcher/trainer/events"
)

// watcher is a [trainer.Watcher] that passes each event to take.
type watcher struct {
	take func(event any)
	now  func() time.Time
	last time.Time // when it took a step
}

// between is a step that is not in the log.
type between events.Step

// Wants limits the steps to those that are drawn.
func (w *watcher) Wants() bool { return w.now().Sub(w.last) >= drawEvery }

func (w *watcher) Step(e events.Step) { w.last = w.now(); w.take(e) }

func (w *watcher) Between(e events.Step) { w.last = w.now(); w.take(between(e)) }

func (w *watcher) Start(e events.Start) { w.take(e) }

func (w *watcher) Eval(e events.Eval) { w.take(e) }

func (w *watcher) Sample(e events.Sample) { w.take(e) }

func (w *watcher) Saved(e events.Saved) { w.take(e) }

func (w *watcher) Alarm(e events.Alarm) { w.take(e) }

func (w *watcher) Stopping(e events.Stopping) { w.take(e) }

func (w *watcher) Profile(e events.Profile) { w.take(e) }

func (w *watcher) Done(e events.Done) { w.take(e) }

// deliver reports an event.
func deliver(to events.Reporter, event any) {
	switch e := event.(type) {
	case events.Start:
		to.Start(e)
	case events.Step:
		to.Step(e)
	case between:
		if w, ok := to.(events.Watcher); ok {
			w.Between(events.Step(e))
		}
	case events.Eval:
		to.Eval(e)
	case events.Sample:
		to.Sample(e)
	case events.Saved:
		to.Saved(e)
	case events.Alarm:
		to.Alarm(e)
	case events.Stopping:
		to.Stopping(e)
	case events.Profile:
		to.Profile(e)
	case events.Done:
		to.Done(e)
	}
}

// mark begins the line of an event. Text that a rank prints never contains a record separator.
const mark = "\x1e"

// longest is the maximum length in bytes of a line that the launcher receives in one piece.
const longest = 64 << 10

// message is an event on its way.
type message struct{ Event any }

// registerEvents tells gob the types of events, which it sends by name.
func registerEvents() {
	for _, e := range []any{
		events.Start{}, events.Step{}, between{}, events.Eval{}, events.Sample{}, events.Saved{},
		events.Alarm{}, events.Stopping{}, events.Profile{}, events.Done{},
	} {
		gob.Register(e)
	}
}

// Relay returns a [trainer.Watcher] that sends events to the launcher of this process.
func Relay(w io.Writer) events.Watcher {
	registerEvents()
	send := func(event any) {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(message{event}); err != nil {
			panic(err)
		}
		// An error does not matter: this process ends with the launcher.
		w.Write(append(base64.StdEncoding.AppendEncode([]byte(mark), b.Bytes()), '\n'))
	}
	return &watcher{take: send, now: time.Now}
}

// Receiver reports the events among the lines that are written to it and passes the other lines on.
type Receiver struct {
	to    events.Watcher
	other io.Writer
	rest  []byte // an incomplete line
}

// NewReceiver returns a receiver of what [Relay] sends.
func NewReceiver(to events.Watcher, other io.Writer) *Receiver {
	registerEvents()
	return &Receiver{to: to, other: other}
}

// Write implements [io.Writer].
func (r *Receiver) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		end := bytes.IndexByte(r.rest, '\n')
		if end < 0 && len(r.rest) <= longest {
			return len(b), nil
		} else if end < 0 {
			end = len(r.rest) - 1
		}
		line := r.rest[:end+1]
		if event := decode(line); event != nil {
			deliver(r.to, event)
		} else if _, err := r.other.Write(line); err != nil {
			return 0, err
		}
		r.rest = append(r.rest[:0], r.rest[end+1:]...)
	}
}

// decode returns the event in a line; nil if there is none.
func decode(line []byte) any {
	text, marked := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(mark))
	if !marked {
		return nil
	}
	var m message
	if b, err := base64.StdEncoding.AppendDecode(nil, text); err != nil || gob.NewDecoder(bytes.NewReader(b)).Decode(&m) != nil {
		return nil
	}
	return m.Event
}
