package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// line is one object of the file: exactly one field is set.
type line struct {
	Start     *Start     `json:"start,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Eval      *Eval      `json:"eval,omitempty"`
	Load      *Load      `json:"load,omitempty"`
	Quantised *Quantised `json:"quantised,omitempty"`
	Choices   *Choices   `json:"choices,omitempty"`
	Times     *Times     `json:"times,omitempty"`
	Done      *Done      `json:"done,omitempty"`
}

// before says whether the line was written before a checkpoint of that step: a run that resumes there does not write it again.
func (l line) before(step int) bool {
	switch {
	case l.Start != nil:
		return l.Start.Step < step
	case l.Step != nil:
		return l.Step.Step <= step
	case l.Load != nil:
		return l.Load.Step <= step
	case l.Quantised != nil:
		return l.Quantised.Step <= step
	case l.Eval != nil:
		return l.Eval.Step < step
	case l.Choices != nil:
		return l.Choices.Step < step
	}
	return l.Times != nil
}

func (l line) addTo(log *Log) error {
	keys := 0
	if l.Start != nil {
		keys, log.Starts = keys+1, append(log.Starts, *l.Start)
	}
	if l.Step != nil {
		keys, log.Steps = keys+1, append(log.Steps, *l.Step)
	}
	if l.Eval != nil {
		keys, log.Evals = keys+1, append(log.Evals, *l.Eval)
	}
	if l.Load != nil {
		keys, log.Loads = keys+1, append(log.Loads, *l.Load)
	}
	if l.Quantised != nil {
		keys, log.Quantised = keys+1, append(log.Quantised, *l.Quantised)
	}
	if c := l.Choices; c != nil {
		if c.TopK < 1 || len(c.Experts)%2 != 0 || len(c.Experts)/2%c.TopK != 0 {
			return fmt.Errorf("choices of %d bytes do not fit top_k %d", len(c.Experts), c.TopK)
		}
		keys, log.Choices = keys+1, append(log.Choices, *c)
	}
	if l.Times != nil {
		keys, log.Times = keys+1, l.Times
	}
	if l.Done != nil {
		keys, log.Done = keys+1, l.Done
	}
	switch keys {
	case 0:
		return errors.New("it has none of the known keys")
	case 1:
		return nil
	}
	return fmt.Errorf("it has %d keys, where one says what it is", keys)
}

// Read returns the record in the folder of a run. A last line that was cut off, by a crash, is left out; an fs.ErrNotExist says that
// there is no record.
func Read(run string) (*Log, error) {
	path := filepath.Join(run, File)
	lines, err := read(path)
	if err != nil {
		return nil, err
	}
	return collect(path, lines)
}

func read(path string) ([]line, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

// parse returns the lines of a file of that name.
func parse(path string, text []byte) (lines []line, err error) {
	for n := 1; ; n++ {
		row, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended {
			return lines, nil
		}
		var l line
		if err := json.Unmarshal(row, &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		lines, text = append(lines, l), rest
	}
}

func collect(path string, lines []line) (*Log, error) {
	log := new(Log)
	for i, l := range lines {
		if err := l.addTo(log); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return log, nil
}

// Writer adds to the record of a run. Its methods keep the first error, which Flush and Close return.
type Writer struct {
	file *os.File
	buf  *bufio.Writer
	err  error
}

// Open begins the record of a run, or goes on with it after a step: lines of later steps, from before the run fell back to its
// checkpoint, are taken out. So are evaluations of that step itself, which may or may not have been made: a run makes them again.
func Open(run string, step int) (*Writer, error) {
	path := filepath.Join(run, File)
	var kept []line
	if step > 0 {
		lines, err := read(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, l := range lines {
			if l.before(step) {
				kept = append(kept, l)
			}
		}
	}
	file, err := os.CreateTemp(run, ".record-*")
	if err != nil {
		return nil, err
	}
	w := &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	for _, l := range kept {
		w.add(l)
	}
	if err := errors.Join(w.Flush(), file.Chmod(0o644), os.Rename(file.Name(), path)); err != nil {
		return nil, errors.Join(err, file.Close(), os.RemoveAll(file.Name()))
	}
	return w, nil
}

// Start adds a start; the other methods add what they are named after.
func (w *Writer) Start(s Start)         { w.add(line{Start: &s}) }
func (w *Writer) Step(s Step)           { w.add(line{Step: &s}) }
func (w *Writer) Eval(e Eval)           { w.add(line{Eval: &e}) }
func (w *Writer) Load(l Load)           { w.add(line{Load: &l}) }
func (w *Writer) Quantised(q Quantised) { w.add(line{Quantised: &q}) }
func (w *Writer) Choices(c Choices)     { w.add(line{Choices: &c}) }
func (w *Writer) Times(t Times)         { w.add(line{Times: &t}) }
func (w *Writer) Done(d Done)           { w.add(line{Done: &d}) }

func (w *Writer) add(l line) {
	if w.err != nil {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("record: %v", err))
	}
	_, w.err = w.buf.Write(append(text, '\n'))
}

// Flush writes what is buffered to disk. A run that saves a checkpoint flushes its record first, so that no checkpoint is ahead of it.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err == nil {
		w.err = w.file.Sync()
	}
	return w.err
}

// Close flushes and ends the record.
func (w *Writer) Close() error { return errors.Join(w.Flush(), w.file.Close()) }
