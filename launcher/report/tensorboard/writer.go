// Package tensorboard writes a run's metrics to an event file for TensorBoard.
//
// The file follows from the run's record alone, so writing it again gives the same bytes. A run
// that was resumed or recovered has no event twice and no partial event, and a reader in the middle
// of the file need not start over.
package tensorboard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// The place of event files in the folder of a run, and the name of the file. TensorBoard looks for
// the word tfevents.
const (
	Folder = "tensorboard"
	file   = "events.out.tfevents.spmoe"
)

// Writer keeps the event file of a run up to date. It is not safe for concurrent use.
type Writer struct {
	run    string
	from   *record.Follower
	file   *os.File // nil until the first event
	state  state
	config func() string
}

// Open returns a Writer for the record in the folder of a run. config returns the run's
// configuration as TOML. It is called when the first event is due.
func Open(run string, config func() string) *Writer {
	return &Writer{run: run, from: record.Follow(run), config: config}
}

// Update adds the events that follow from new lines of the record.
func (w *Writer) Update() error {
	lines, again, err := w.from.Next()
	if err != nil || len(lines) == 0 && !again {
		return err
	}
	if w.file == nil || again {
		return w.rewrite(lines)
	}
	_, err = w.file.Write(w.state.events(lines))
	return err
}

// rewrite makes the file match all lines. It keeps the common beginning as it is.
func (w *Writer) rewrite(lines []record.Line) error {
	if err := w.Close(); err != nil {
		return err
	}
	w.state = state{config: w.config()}
	content := appendFrame(nil, event{time: startOf(lines)}.marshal())
	content = append(content, w.state.events(lines)...)
	dir, err := system.OwnFolder(w.run, Folder)
	if err != nil {
		return err
	}
	f, err := system.OpenOwn(dir, file, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	same, err := common(f, content)
	if err == nil {
		err = f.Truncate(same)
	}
	if err == nil {
		_, err = f.Seek(same, io.SeekStart)
	}
	if err == nil {
		_, err = f.Write(content[same:])
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", f.Name(), err), f.Close())
	}
	w.file = f
	return nil
}

// common returns the length of the common beginning of a file and content.
func common(file io.Reader, content []byte) (n int64, err error) {
	portion := make([]byte, 64<<10)
	for {
		read, err := io.ReadFull(file, portion)
		there := portion[:min(read, len(content))]
		if !bytes.Equal(there, content[:len(there)]) {
			for i := range there {
				if there[i] != content[i] {
					return n + int64(i), nil
				}
			}
		}
		n, content = n+int64(len(there)), content[len(there):]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || len(content) == 0 {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// Close ends the file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// startOf returns when a run began; 0 if its record does not say.
func startOf(lines []record.Line) float64 {
	i := slices.IndexFunc(lines, func(l record.Line) bool { return l.Start != nil })
	if i < 0 {
		return 0
	}
	return lines[i].Start.Time
}

// state is the state that events depend on, in addition to their line.
type state struct {
	config string // not yet written; empty: written
	start  record.Start
	now    float64 // seconds since 1970
}

// events returns the framed events that follow from lines.
func (s *state) events(lines []record.Line) (content []byte) {
	for _, l := range lines {
		e := event{step: s.begin(l)}
		s.values(&e, l)
		if e.time = s.now; e.values != nil {
			content = appendFrame(content, e.marshal())
		}
	}
	return content
}

// begin advances the time to that of a line and returns the line's step.
func (s *state) begin(l record.Line) (step int) {
	switch {
	case l.Start != nil:
		s.start, s.now = *l.Start, max(s.now, l.Start.Time)
		return l.Start.Step
	case l.Step != nil:
		if s.now += l.Step.Seconds; l.Step.Time > 0 { // old records lack the time
			s.now = l.Step.Time
		}
		return l.Step.Step
	case l.Eval != nil:
		return l.Eval.Step
	case l.Load != nil:
		return l.Load.Step
	case l.Phases != nil:
		return l.Phases.Step
	case l.Sample != nil:
		return l.Sample.Step
	}
	return 0
}

func (s *state) values(e *event, l record.Line) {
	switch {
	case l.Start != nil && s.config != "":
		e.text("config", code(s.config))
		s.config = ""
	case l.Step != nil:
		s.stepValues(e, *l.Step)
	case l.Eval != nil:
		e.scalar("loss/held-out", float64(l.Eval.Loss))
	case l.Load != nil:
		e.counts(fmt.Sprintf("experts/layer %02d", l.Load.Layer), l.Load.Tokens)
	case l.Phases != nil:
		for _, name := range sortedKeys(l.Phases.Families) {
			e.scalar("seconds/"+strings.ReplaceAll(name, " ", "_"), l.Phases.Families[name])
		}
	case l.Sample != nil:
		e.text("sample", code(l.Sample.Prompt+l.Sample.Text))
	}
}

func (s *state) stepValues(e *event, l record.Step) {
	e.scalar("loss/train", float64(l.Loss))
	e.scalar("optimizer/grad_norm", float64(l.GradNorm))
	e.scalar("optimizer/lr", l.LR)
	e.scalar("experts/imbalance", l.Imbalance)
	e.scalar("seconds/step", l.Seconds)
	if l.MTP != 0 {
		e.scalar("loss/mtp", float64(l.MTP))
	}
	if l.Balance != 0 {
		e.scalar("loss/balance", float64(l.Balance))
	}
	if l.Dropped > 0 {
		e.scalar("experts/dropped", float64(l.Dropped))
	}
	if rate := float64(s.start.Tokens) / l.Seconds; s.start.Tokens > 0 && l.Seconds > 0 {
		e.scalar("speed/tokens_per_second", rate)
		if s.start.Peak > 0 {
			e.scalar("speed/mfu", rate*s.start.FLOPs/s.start.Peak)
		}
	}
}

// code formats text as a Markdown code block.
func code(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

func sortedKeys(m map[string]float64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
