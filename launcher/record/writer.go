package record

// Writing a record, and continuing it after the run has gone back to an earlier step.

import (
	"bytes"
	"cmp"
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

// Writer appends to the record of a run. Lines that cannot be written, for example because the disk
// is full, wait in memory: every Push and Flush tries again. The file never has part of a line
// before another one. A nil Writer writes nothing.
type Writer struct {
	Held *system.FolderLock // the run's folder, if the job holds it: nothing is written otherwise

	file    disk
	end     int64  // bytes of complete lines in the file
	synced  int64  // those of them that have been on the disk
	waiting []byte // complete lines that are not in the file yet
	err     error  // why the record has ended early
}

// disk is what a Writer needs of its file.
type disk interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

const (
	// fullBuffer is the number of waiting bytes that are written without a Push.
	fullBuffer = 64 << 10
	// mostWaiting is the maximum number of waiting bytes.
	mostWaiting = 64 << 20
)

// ErrEnded says that a record has ended early: lines are lost, and none can follow.
var ErrEnded = errors.New("the record has ended")

// Open begins the record of a run, or continues it after a step. It removes lines of later steps,
// from before the run went back to its checkpoint. It also removes evaluations of that step itself,
// which the run repeats.
func Open(run string, step int) (*Writer, error) {
	if file, end := cut(run, step); file != nil {
		return &Writer{file: file, end: end, synced: end}, nil
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
	w := &Writer{file: file}
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

// tailBytes is the size of the end of a record that is searched before all of it is read.
const tailBytes = 64 << 10

// cut truncates the record in place if the lines to remove are its last few, as after a rank
// failure in the middle of a step. It returns the file and its new end, or nil if that does not
// suffice.
func cut(run string, step int) (file *os.File, end int64) {
	file, err := system.OpenOwn(run, File, os.O_RDWR)
	if err != nil {
		return nil, 0
	}
	end, err = lastBefore(file, step)
	if err == nil {
		err = file.Truncate(end)
	}
	if err != nil {
		file.Close()
		return nil, 0
	}
	return file, end
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
		if begin == 0 || strictjson.Unmarshal(tail[begin:len(tail)-1], &l) != nil || l.Usage != nil || l.Times != nil || l.Done != nil {
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

// Usage appends what the ranks moved and held.
func (w *Writer) Usage(u Usage) { w.add(Line{Usage: &u}) }

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
		w.err = fmt.Errorf("%w: a written line does not parse: %w", ErrEnded, err)
		return
	}
	w.waiting = append(append(w.waiting, text...), '\n')
	if len(w.waiting) < fullBuffer {
		return
	}
	if err := w.write(); err != nil && len(w.waiting) > mostWaiting {
		w.err = fmt.Errorf("%w: %d bytes of it could not be written: %w", ErrEnded, len(w.waiting), err)
		w.waiting = nil
	}
}

// write passes the waiting lines to the operating system. What it cannot write whole stays waiting.
func (w *Writer) write() error {
	if len(w.waiting) == 0 {
		return nil
	}
	if err := w.Held.Check(); err != nil {
		return err
	}
	n, err := w.file.WriteAt(w.waiting, w.end)
	if err != nil {
		n = bytes.LastIndexByte(w.waiting[:n], '\n') + 1
	}
	w.end += int64(n)
	w.waiting = w.waiting[:copy(w.waiting, w.waiting[n:])]
	if err != nil {
		err = errors.Join(err, w.file.Truncate(w.end))
	}
	return err
}

// Push passes buffered lines to the operating system. They then survive this process, but not a
// power failure. After an error the next call tries again, unless it is [ErrEnded].
func (w *Writer) Push() error {
	if w == nil {
		return nil
	}
	return cmp.Or(w.err, w.write())
}

// Flush writes buffered lines to disk. A run flushes its record before it saves a checkpoint, so
// that no checkpoint is ahead of the record. Errors are those of Push.
func (w *Writer) Flush() error {
	if err := w.Push(); w == nil || err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return errors.Join(err, w.recall())
	}
	w.synced = w.end
	return nil
}

// recall makes the lines wait again that a failed Sync may have lost: the next Sync may report
// success without them.
func (w *Writer) recall() error {
	lines := make([]byte, w.end-w.synced)
	if n, err := w.file.ReadAt(lines, w.synced); n < len(lines) {
		return err
	}
	w.waiting, w.end = append(lines, w.waiting...), w.synced
	return nil
}

// Close flushes and ends the record.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.Flush(), w.file.Close())
}
