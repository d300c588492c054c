package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
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
	if err := l.check(); err != nil {
		return err
	}
	switch {
	case l.Start != nil:
		log.Starts = append(log.Starts, *l.Start)
	case l.Step != nil:
		log.Steps = append(log.Steps, *l.Step)
	case l.Eval != nil:
		log.Evals = append(log.Evals, *l.Eval)
	case l.Load != nil:
		log.Loads = append(log.Loads, *l.Load)
	case l.Quantised != nil:
		log.Quantised = append(log.Quantised, *l.Quantised)
	case l.Choices != nil:
		log.Choices = append(log.Choices, *l.Choices)
	case l.Times != nil:
		log.Times = l.Times
	case l.Done != nil:
		log.Done = l.Done
	}
	return nil
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
	file, _, err := system.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parse(path, file)
}

// parse returns the lines of a file of that name.
func parse(path string, file io.Reader) (lines []line, err error) {
	in := bufio.NewScanner(file)
	in.Buffer(nil, maxLine)
	in.Split(endedLines)
	for in.Scan() {
		var l line
		if err := strictjson.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(lines)+1, err)
		}
		lines = append(lines, l)
	}
	if err = in.Err(); errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line has more than %d bytes", maxLine-1)
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, len(lines)+1, err)
	}
	return lines, nil
}

// endedLines is a [bufio.SplitFunc] for lines without their end; it drops what follows the last end.
func endedLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

func collect(path string, lines []line) (*Log, error) {
	log := new(Log)
	for i, l := range lines {
		if err := l.addTo(log); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	if err := log.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
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
	if file := cut(filepath.Join(run, File), step); file != nil {
		return newWriter(file), nil
	}
	return rewrite(run, step)
}

// rewrite is Open for any record.
func rewrite(run string, step int) (*Writer, error) {
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
	file, err := system.CreateNew(run, ".record-")
	if err != nil {
		return nil, err
	}
	w := newWriter(file)
	for _, l := range kept {
		w.add(l)
	}
	if err := errors.Join(w.Flush(), os.Rename(file.Name(), path)); err != nil {
		return nil, errors.Join(err, file.Close(), os.RemoveAll(file.Name()))
	}
	return w, nil
}

func newWriter(file *os.File) *Writer {
	return &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
}

// tailBytes is how much of the end of a record is looked at before all of it is read.
const tailBytes = 64 << 10

// cut shortens the record in place, where the lines to be taken out are its last few: so it is when a rank has failed in the middle of a
// step. It returns the file, at its new end, or nil if it is not that simple.
func cut(path string, step int) *os.File {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	end, err := lastBefore(file, step)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil
	}
	return file
}

var errNotSimple = errors.New("the end of the record does not show where it is to be cut")

// lastBefore returns where the last line ends that was written before a checkpoint of that step.
func lastBefore(file *os.File, step int) (end int64, err error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, errNotSimple
	}
	tail := make([]byte, min(info.Size(), tailBytes))
	start := info.Size() - int64(len(tail))
	if _, err := file.ReadAt(tail, start); err != nil {
		return 0, err
	}
	tail = tail[:bytes.LastIndexByte(tail, '\n')+1] // a line without its end is none
	for len(tail) > 0 {
		begin := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
		var l line
		if begin == 0 || strictjson.Unmarshal(tail[begin:len(tail)-1], &l) != nil || l.Times != nil || l.Done != nil {
			return 0, errNotSimple // it may have begun further up, or the run had ended
		}
		if l.before(step) {
			return start + int64(len(tail)), nil
		}
		tail = tail[:begin]
	}
	return 0, errNotSimple
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
	if err == nil {
		err = l.check()
	}
	if err == nil && len(text) >= maxLine {
		err = fmt.Errorf("a line has %d bytes, more than %d", len(text), maxLine-1)
	}
	if err != nil {
		w.err = fmt.Errorf("record: a line could not be read again: %w", err)
		return
	}
	_, w.err = w.buf.Write(append(text, '\n'))
}

// Push hands what is buffered to the operating system: it outlives this process, though not a power cut.
func (w *Writer) Push() error {
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// Flush writes what is buffered to disk. A run that saves a checkpoint flushes its record first, so that no checkpoint is ahead of it.
func (w *Writer) Flush() error {
	if w.Push() == nil {
		w.err = w.file.Sync()
	}
	return w.err
}

// Close flushes and ends the record.
func (w *Writer) Close() error { return errors.Join(w.Flush(), w.file.Close()) }
