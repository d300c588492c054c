package export

// Event files for TensorBoard.
//
// Each process that adds to a run begins a file of its own, named as TensorFlow names them. Without
// their heads, the files of a run follow one another as its record does: a run that was resumed or
// recovered has no event twice and no partial event. Files that go beyond the record, because the
// run went back, are cut; a reader in the middle of the rest need not start over.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// TensorBoardFolder is the place of event files in the folder of a run.
const TensorBoardFolder = "tensorboard"

// TensorBoard keeps the event files of a run up to date. It is not safe for concurrent use.
type TensorBoard struct {
	run    string
	fresh  bool // begin a new file
	from   *record.Follower
	begun  bool     // the files agree with the lines that were read
	path   string   // of its own file; empty until the first event
	file   *os.File // nil while path is empty
	state  state
	config func() string
}

// OpenTensorBoard returns a writer for the record in the folder of a run. If fresh, as in a process
// that makes steps, new events begin a new file. Otherwise they continue the last file. config
// returns the run's configuration as TOML. It is called when the first event is due.
func OpenTensorBoard(run string, fresh bool, config func() string) *TensorBoard {
	return &TensorBoard{run: run, fresh: fresh, from: record.Follow(run), config: config}
}

// Update adds the events that follow from new lines of the record.
func (w *TensorBoard) Update() error {
	lines, again, err := w.from.Next()
	if err != nil || len(lines) == 0 && !again {
		return err
	}
	if !w.begun || again {
		return w.rewrite(lines)
	}
	return w.write(w.state.events(lines))
}

// rewrite makes the files agree with all lines. It keeps their common beginning as it is.
func (w *TensorBoard) rewrite(lines []record.Line) error {
	if err := w.Close(); err != nil {
		return err
	}
	w.state = state{config: w.config()}
	content := w.state.events(lines)
	dir, err := system.OwnFolder(w.run, TensorBoardFolder)
	if err != nil {
		return err
	}
	kept, last, size, err := keepCommon(dir, content)
	if err != nil {
		return err
	}
	if last != "" && (last == w.path || !w.fresh) {
		w.path = last
		if w.file, err = openAt(last, size); err != nil {
			return err
		}
	} else {
		w.path = ""
	}
	w.begun = true
	return w.write(content[kept:])
}

// write adds framed events to the writer's own file.
func (w *TensorBoard) write(content []byte) (err error) {
	if len(content) == 0 {
		return nil
	}
	if w.file == nil {
		if w.file, err = createFile(filepath.Join(w.run, TensorBoardFolder), content); err != nil {
			return err
		}
		w.path = w.file.Name()
	}
	_, err = w.file.Write(content)
	return err
}

// Close ends the file.
func (w *TensorBoard) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
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
		s.begin(l)
		e := event{time: s.now, step: l.Number()}
		if s.values(&e, l); e.values != nil {
			content = appendFrame(content, e.marshal())
		}
	}
	return content
}

// begin advances the time to that of a line.
func (s *state) begin(l record.Line) {
	switch {
	case l.Start != nil:
		s.start, s.now = *l.Start, max(s.now, l.Start.Time)
	case l.Step != nil:
		if s.now += l.Step.Seconds; l.Step.Time > 0 { // old records lack the time
			s.now = l.Step.Time
		}
	}
}

func (s *state) values(e *event, l record.Line) {
	switch {
	case l.Start != nil && s.config != "":
		e.text("config", code(s.config))
		s.config = ""
	case l.Step != nil:
		step := l.Step.With(s.start)
		for _, q := range record.Quantities {
			if x, ok := q.In(&step); ok && q.TensorBoard != "" {
				e.scalar(q.TensorBoard, x)
			}
		}
	case l.Eval != nil:
		e.scalar("loss/held-out", float64(l.Eval.Loss))
		for _, t := range l.Eval.Tasks {
			for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
				e.scalar("task/"+t.Task+"/"+name, float64(t.Metrics[name]))
			}
		}
	case l.Load != nil:
		e.counts(fmt.Sprintf("experts/layer %02d", l.Load.Layer), l.Load.Tokens)
	case l.Phases != nil:
		for _, name := range slices.Sorted(maps.Keys(l.Phases.Families)) {
			e.scalar("seconds/"+strings.ReplaceAll(name, " ", "_"), l.Phases.Families[name])
		}
	case l.Sample != nil:
		e.text("sample", code(l.Sample.Prompt+l.Sample.Text))
	}
}

// code formats text as a Markdown code block.
func code(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
