package live

// How a rank process reports to the launcher, which draws. An event is a line of the rank's output
// that begins with a mark. If the process is replaced during the run, its replacement sends the
// lines.

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"io"
	"time"

	"spmoe/launcher/trainer"
)

// event is one call of a Reporter. Between marks a step that is not in the log.
type event struct {
	Start  *trainer.Start
	Step   *trainer.Step
	Eval   *trainer.Eval
	Saved  *trainer.Saved
	Sample *trainer.Sample
	Alarm  *trainer.Alarm

	Stopping *trainer.Stopping
	Profile  *trainer.Profile
	Done     *trainer.Done
	Between  bool
}

// mark begins the line of an event. Text that a rank prints never contains a record separator.
const mark = "\x1e"

// longest is the maximum length in bytes of a line that the launcher receives in one piece.
const longest = 64 << 10

// Sender is a [trainer.Watcher] that sends events to the launcher of this process.
type Sender struct {
	W    io.Writer
	last time.Time // when a step was last sent
}

func (s *Sender) send(e event) {
	line := encode(e)
	if len(line) >= longest && e.Step != nil { // a model with very many experts
		step := *e.Step
		step.Loads, step.Layers = nil, 0
		e.Step = &step
		line = encode(e)
	}
	s.W.Write(line) // an error does not matter: this process ends with the launcher
}

func encode(e event) []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(e); err != nil {
		panic(err)
	}
	return append(base64.StdEncoding.AppendEncode([]byte(mark), b.Bytes()), '\n')
}

// Start implements [trainer.Watcher], as the other methods do.
func (s *Sender) Start(e trainer.Start) { s.send(event{Start: &e}) }

// Step sends a step of the log.
func (s *Sender) Step(e trainer.Step) {
	s.last = time.Now()
	s.send(event{Step: &e})
}

// Wants limits the events to what is drawn.
func (s *Sender) Wants() bool { return time.Since(s.last) >= drawEvery }

// Between sends a step that is not in the log.
func (s *Sender) Between(e trainer.Step) {
	s.last = time.Now()
	s.send(event{Step: &e, Between: true})
}

// Eval sends a validation loss.
func (s *Sender) Eval(e trainer.Eval) { s.send(event{Eval: &e}) }

// Sample sends text that the model wrote.
func (s *Sender) Sample(e trainer.Sample) { s.send(event{Sample: &e}) }

// Saved sends the path of a checkpoint.
func (s *Sender) Saved(e trainer.Saved) { s.send(event{Saved: &e}) }

// Alarm sends a problem.
func (s *Sender) Alarm(e trainer.Alarm) { s.send(event{Alarm: &e}) }

// Stopping sends when the run will stop.
func (s *Sender) Stopping(e trainer.Stopping) { s.send(event{Stopping: &e}) }

// Profile sends the time of a step by kind of work.
func (s *Sender) Profile(e trainer.Profile) { s.send(event{Profile: &e}) }

// Done sends the run's summary.
func (s *Sender) Done(e trainer.Done) { s.send(event{Done: &e}) }

// Receiver reports the events among the lines that are written to it and passes the other lines on.
type Receiver struct {
	To    trainer.Watcher
	Other io.Writer
	rest  []byte // an incomplete line
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
		if e, ok := decode(line); ok {
			e.report(r.To)
		} else if _, err := r.Other.Write(line); err != nil {
			return 0, err
		}
		r.rest = append(r.rest[:0], r.rest[end+1:]...)
	}
}

// decode returns the event in a line, if there is one.
func decode(line []byte) (e event, ok bool) {
	text, marked := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(mark))
	if !marked {
		return e, false
	}
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(b)).Decode(&e)
	}
	return e, err == nil
}

func (e event) report(to trainer.Watcher) {
	switch {
	case e.Start != nil:
		to.Start(*e.Start)
	case e.Step != nil && e.Between:
		to.Between(*e.Step)
	case e.Step != nil:
		to.Step(*e.Step)
	case e.Eval != nil:
		to.Eval(*e.Eval)
	case e.Sample != nil:
		to.Sample(*e.Sample)
	case e.Saved != nil:
		to.Saved(*e.Saved)
	case e.Alarm != nil:
		to.Alarm(*e.Alarm)
	case e.Stopping != nil:
		to.Stopping(*e.Stopping)
	case e.Profile != nil:
		to.Profile(*e.Profile)
	case e.Done != nil:
		to.Done(*e.Done)
	}
}
