package record

// Writing a record, and continuing it after the run has gone back to an earlier step.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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

// Open begins the record of a run, or continues it after a step. It cuts off the lines of later
// steps, from before the run went back to its checkpoint. It also cuts off evaluations of that step
// itself, which the run repeats.
func Open(run string, step int) (*Writer, error) {
	file, err := system.OpenOwn(run, File, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	end, err := lastBefore(file, step)
	if err == nil {
		err = file.Truncate(end)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Writer{file: file, end: end}, nil
}

// mostLater bounds the bytes behind the line that a run goes on after.
const mostLater = 1 << 28

// lastBefore returns the end of the last line that was written before a checkpoint of that step.
// Lines behind it are of later steps, of the end of the run, or damaged.
func lastBefore(file *os.File, step int) (end int64, err error) {
	stat, err := file.Stat()
	if err != nil || step == 0 {
		return 0, err
	}
	for size := int64(maxLine); ; size *= 4 {
		start := max(stat.Size()-size, 0)
		tail := make([]byte, stat.Size()-start)
		if _, err := file.ReadAt(tail, start); err != nil {
			return 0, err
		}
		for tail = tail[:bytes.LastIndexByte(tail, '\n')+1]; len(tail) > 0; {
			begin := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
			var l Line
			if strictjson.Unmarshal(tail[begin:len(tail)-1], &l) == nil && l.before(step) && (l.Times == nil || l.Times.Step > 0) {
				return start + int64(len(tail)), nil
			}
			tail = tail[:begin]
		}
		if start == 0 {
			return 0, nil
		} else if size > mostLater {
			return 0, fmt.Errorf("%s has no line of a step up to %d in its last %d bytes: move it away", file.Name(), step, size)
		}
	}
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

// Phases appends the time of recent steps.
func (w *Writer) Phases(p Phases) { w.add(Line{Phases: &p}) }

// Times appends the time of a warm step.
func (w *Writer) Times(t Times) { w.add(Line{Times: &t}) }

// Sample appends text of the model, as UTF-8 and truncated to what a record can hold.
func (w *Writer) Sample(s Sample) {
	brief := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxSample/3)], "\uFFFD") }
	s.Prompt, s.Text = brief(s.Prompt), brief(s.Text)
	w.add(Line{Sample: &s})
}

// Done ends the record.
func (w *Writer) Done(d Done) { w.add(Line{Done: &d}) }

func (w *Writer) add(l Line) {
	if w == nil || w.err != nil {
		return
	}
	text, err := json.Marshal(l)
	if err == nil && len(text) >= maxLine {
		err = fmt.Errorf("a line has %d bytes, more than %d", len(text), maxLine-1)
	}
	if err != nil {
		w.err = fmt.Errorf("%w: a line cannot be written: %w", ErrEnded, err)
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
	return w.file.Sync()
}

// Close flushes and ends the record.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.Flush(), w.file.Close())
}
