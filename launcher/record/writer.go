package record

// Writing a record, and going on with one after the run has gone back to an earlier step.

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
	"strings"
	"unicode/utf8"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
)

// Writer adds to the record of a run. Its methods keep the first error, which Flush and Close
// return. A nil Writer writes nothing.
type Writer struct {
	file *os.File
	buf  *bufio.Writer
	err  error
}

// Open begins the record of a run, or goes on with it after a step: lines of later steps, from
// before the run fell back to its checkpoint, are taken out. So are evaluations of that step
// itself, which may or may not have been made: a run makes them again.
func Open(run string, step int) (*Writer, error) {
	if file := cut(filepath.Join(run, File), step); file != nil {
		return newWriter(file), nil
	}
	return rewrite(run, step)
}

// rewrite is Open for any record.
func rewrite(run string, step int) (*Writer, error) {
	path := filepath.Join(run, File)
	var kept []Line
	if step > 0 {
		lines, err := read(find(run))
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
	if err := os.Remove(filepath.Join(run, oldFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

func newWriter(file *os.File) *Writer {
	return &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
}

// tailBytes is how much of the end of a record is looked at before all of it is read.
const tailBytes = 64 << 10

// cut shortens the record in place, where the lines to be taken out are its last few: so it is when
// a rank has failed in the middle of a step. It returns the file, at its new end, or nil if it is
// not that simple.
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
		var l Line
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
func (w *Writer) Start(s Start)         { w.add(Line{Start: &s}) }
func (w *Writer) Step(s Step)           { w.add(Line{Step: &s}) }
func (w *Writer) Eval(e Eval)           { w.add(Line{Eval: &e}) }
func (w *Writer) Load(l Load)           { w.add(Line{Load: &l}) }
func (w *Writer) Quantized(q Quantized) { w.add(Line{Quantized: &q}) }
func (w *Writer) Choices(c Choices)     { w.add(Line{Choices: &c}) }
func (w *Writer) Phases(p Phases)       { w.add(Line{Phases: &p}) }
func (w *Writer) Times(t Times)         { w.add(Line{Times: &t}) }

// Sample adds text of the model, as much of it as a record holds.
func (w *Writer) Sample(s Sample) {
	s.Prompt, s.Text = brief(s.Prompt), brief(s.Text)
	w.add(Line{Sample: &s})
}

// brief is the beginning of a text, as UTF-8.
func brief(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxSample)], "\uFFFD")
	for cut := maxSample; len(text) > maxSample; cut-- { // what was not UTF-8 has become longer
		if utf8.RuneStart(text[cut]) {
			text = text[:cut]
		}
	}
	return text
}

// Done ends the record.
func (w *Writer) Done(d Done) { w.add(Line{Done: &d}) }

func (w *Writer) add(l Line) {
	if w == nil || w.err != nil {
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

// Push hands what is buffered to the operating system: it outlives this process, though not a power
// cut.
func (w *Writer) Push() error {
	if w == nil {
		return nil
	}
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// Flush writes what is buffered to disk. A run that saves a checkpoint flushes its record first, so
// that no checkpoint is ahead of it.
func (w *Writer) Flush() error {
	if w == nil {
		return nil
	}
	if w.Push() == nil {
		w.err = w.file.Sync()
	}
	return w.err
}

// Close flushes and ends the record.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.Flush(), w.file.Close())
}
