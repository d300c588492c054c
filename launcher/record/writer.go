package record

// Writing a record, and continuing it after the run has gone back to an earlier step.

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

// Writer appends to the record of a run. Its methods store the first error, which Flush and Close
// return. A nil Writer writes nothing.
type Writer struct {
	file *os.File
	buf  *bufio.Writer
	err  error
}

// Open begins the record of a run, or continues it after a step. It removes lines of later steps,
// from before the run went back to its checkpoint. It also removes evaluations of that step itself,
// which the run repeats.
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

// tailBytes is the size of the end of a record that is searched before all of it is read.
const tailBytes = 64 << 10

// cut truncates the record in place if the lines to remove are its last few, as after a rank
// failure in the middle of a step. It returns the file, positioned at its new end, or nil if that
// does not suffice.
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

var errNotSimple = errors.New("the end of the record does not show where to cut it")

// lastBefore returns the end of the last line that was written before a checkpoint of that step.
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
	tail = tail[:bytes.LastIndexByte(tail, '\n')+1] // ignore an incomplete line
	for len(tail) > 0 {
		begin := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
		var l Line
		if begin == 0 || strictjson.Unmarshal(tail[begin:len(tail)-1], &l) != nil || l.Times != nil || l.Done != nil {
			return 0, errNotSimple // it may be further up, or the run had ended
		}
		if l.before(step) {
			return start + int64(len(tail)), nil
		}
		tail = tail[:begin]
	}
	return 0, errNotSimple
}

// Start appends a start or a resumption.
func (w *Writer) Start(s Start) { w.add(Line{Start: &s}) }

// Step appends an optimizer step.
func (w *Writer) Step(s Step) { w.add(Line{Step: &s}) }

// Eval appends an evaluation.
func (w *Writer) Eval(e Eval) { w.add(Line{Eval: &e}) }

// Load appends the expert loads of a layer.
func (w *Writer) Load(l Load) { w.add(Line{Load: &l}) }

// Quantized appends the quantization error of an operand.
func (w *Writer) Quantized(q Quantized) { w.add(Line{Quantized: &q}) }

// Choices appends expert choices.
func (w *Writer) Choices(c Choices) { w.add(Line{Choices: &c}) }

// Phases appends the time of recent steps.
func (w *Writer) Phases(p Phases) { w.add(Line{Phases: &p}) }

// Times appends the time of a warm step.
func (w *Writer) Times(t Times) { w.add(Line{Times: &t}) }

// Sample appends text of the model, truncated to what a record can hold.
func (w *Writer) Sample(s Sample) {
	s.Prompt, s.Text = brief(s.Prompt), brief(s.Text)
	w.add(Line{Sample: &s})
}

// brief truncates a text, as UTF-8.
func brief(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxSample)], "\uFFFD")
	for cut := maxSample; len(text) > maxSample; cut-- { // replacing invalid UTF-8 has made it longer
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
		w.err = fmt.Errorf("record: a written line does not parse: %w", err)
		return
	}
	_, w.err = w.buf.Write(append(text, '\n'))
}

// Push passes buffered lines to the operating system. They then survive this process, but not a
// power failure.
func (w *Writer) Push() error {
	if w == nil {
		return nil
	}
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// Flush writes buffered lines to disk. A run flushes its record before it saves a checkpoint, so
// that no checkpoint is ahead of the record.
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
