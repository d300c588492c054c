package routes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"spmoe/datasets/arrowipc"
	"spmoe/launcher/system"
)

// Writer writes a file of routes. A step is in the file when Append returns.
type Writer struct {
	header  Header
	file    *os.File
	batches *arrowipc.NumberWriter
	last    int // step
	columns [4][]byte
}

// Continue returns a writer of the steps after last. It keeps the steps up to last that a file at
// path has, which may be damaged behind them, and drops the others.
func Continue(path string, h Header, last int) (w *Writer, err error) {
	w = &Writer{header: h, last: last}
	metadata, err := h.metadata()
	if err != nil {
		return nil, err
	}
	if w.file, err = system.CreateNew(filepath.Dir(path), ".new-"); err != nil {
		return nil, err
	}
	if w.batches, err = arrowipc.NewNumberWriter(w.file, h.columns(), metadata); err == nil {
		err = w.copy(path, last)
	}
	if err == nil {
		err = os.Rename(w.file.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording routes: %w", err), w.file.Close(), os.Remove(w.file.Name()))
	}
	return w, nil
}

// copy copies the steps up to last.
func (w *Writer) copy(path string, last int) error {
	if last == 0 {
		return nil
	}
	file, err := system.OpenOwn(filepath.Dir(path), filepath.Base(path), os.O_RDONLY) // no link
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	file.Close()
	old, err := Open(path)
	if err != nil {
		return err
	}
	if err = old.Header.Fits(w.header); err != nil {
		err = fmt.Errorf("%s exists: %w: move it away", path, err)
	} else {
		err = w.copySteps(old, last)
	}
	return errors.Join(err, old.Close())
}

func (w *Writer) copySteps(old *Reader, last int) error {
	for at := 0; at < last; {
		s, err := old.Next()
		if err == io.EOF {
			return fmt.Errorf("%s ends after step %d, but step %d comes next: move it away", old.path, at, last+1)
		} else if err != nil {
			return err
		}
		if at = s.Step; at > last {
			return nil
		}
		if err := w.write(s); err != nil {
			return err
		}
	}
	return nil
}

// Fits returns an error unless the routes of a file can replace those of a run: the same tokens in
// the same order, and the same number of experts.
func (h Header) Fits(run Header) error {
	for _, c := range []struct {
		name      string
		has, want any
	}{
		{"tokens per sequence", h.Seq, run.Seq}, {"sequences per step", h.Batch, run.Batch},
		{"experts", h.Experts, run.Experts}, {"experts per token", h.TopK, run.TopK},
		{"seed", h.Seed, run.Seed}, {"training text", h.Text, run.Text},
	} {
		if c.has != c.want {
			return fmt.Errorf("they are of a run with %s %v, but this one has %v", c.name, c.has, c.want)
		}
	}
	if !slices.Equal(h.Layers, run.Layers) {
		return fmt.Errorf("they are of layers %v, but this model has experts in layers %v", h.Layers, run.Layers)
	}
	return nil
}

// Last returns the number of the last step.
func (w *Writer) Last() int { return w.last }

// Append writes the step after the last one.
func (w *Writer) Append(s Step) error {
	if err := w.write(s); err != nil {
		return fmt.Errorf("recording routes: %w", err)
	}
	w.last = s.Step
	return nil
}

func (w *Writer) write(s Step) error {
	h, order := w.header, binary.LittleEndian
	rows := len(h.Layers) * h.Tokens()
	for i := range w.columns {
		w.columns[i] = w.columns[i][:0]
	}
	c := &w.columns
	for i := range rows {
		c[columnStep] = order.AppendUint32(c[columnStep], uint32(s.Step))
		c[columnLayer] = order.AppendUint32(c[columnLayer], uint32(h.Layers[i/h.Tokens()]))
	}
	for _, e := range s.Experts {
		c[columnExperts] = order.AppendUint16(c[columnExperts], uint16(e))
	}
	for _, weight := range s.Weights {
		c[columnWeights] = order.AppendUint32(c[columnWeights], math.Float32bits(weight))
	}
	return w.batches.Write(rows, c[:])
}

// Close ends the file.
func (w *Writer) Close() error { return errors.Join(w.batches.Close(), w.file.Close()) }
