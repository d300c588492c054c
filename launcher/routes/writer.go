package routes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/launcher/system"
)

// Writer writes a file of routes. A step is in the file when Append returns.
type Writer struct {
	header  Header
	schema  *arrow.Schema
	file    *os.File
	batches *ipc.Writer
	last    int // step
	ids     []uint16
	numbers [2][]int32 // columns step and layer
}

// Continue returns a writer of the steps after last. It keeps the steps up to last that a file at
// path has, which may be damaged behind them, and drops the others.
func Continue(path string, h Header, last int) (w *Writer, err error) {
	w = &Writer{header: h, last: last}
	if w.schema, err = h.schema(); err != nil {
		return nil, err
	}
	if w.file, err = system.CreateNew(filepath.Dir(path), ".new-"); err != nil {
		return nil, err
	}
	w.batches = ipc.NewWriter(w.file, ipc.WithSchema(w.schema), ipc.WithZstd(), ipc.WithCompressConcurrency(1))
	if err = w.copy(path, last); err == nil {
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
	old, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
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
	h := w.header
	rows := len(h.Layers) * h.Tokens()
	w.ids = w.ids[:0]
	for _, e := range s.Experts {
		w.ids = append(w.ids, uint16(e))
	}
	for i := range w.numbers {
		w.numbers[i] = w.numbers[i][:0]
	}
	for i := range rows {
		w.numbers[0], w.numbers[1] = append(w.numbers[0], int32(s.Step)), append(w.numbers[1], int32(h.Layers[i/h.Tokens()]))
	}
	columns := []arrow.Array{
		plain(w.schema.Field(0).Type, rows, arrow.Int32Traits.CastToBytes(w.numbers[0])),
		plain(w.schema.Field(1).Type, rows, arrow.Int32Traits.CastToBytes(w.numbers[1])),
		lists(w.schema.Field(2).Type, rows, arrow.PrimitiveTypes.Uint16, len(w.ids), arrow.Uint16Traits.CastToBytes(w.ids)),
		lists(w.schema.Field(3).Type, rows, arrow.PrimitiveTypes.Float32, len(s.Weights), arrow.Float32Traits.CastToBytes(s.Weights)),
	}
	batch := array.NewRecord(w.schema, columns, int64(rows))
	defer batch.Release()
	return w.batches.Write(batch)
}

// plain returns an array of n numbers in memory.
func plain(of arrow.DataType, n int, values []byte) arrow.Array {
	return array.MakeFromData(array.NewData(of, n, []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0))
}

// lists returns an array of n lists of the same length, of numbers in memory.
func lists(of arrow.DataType, n int, item arrow.DataType, items int, values []byte) arrow.Array {
	child := array.NewData(item, items, []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0)
	return array.MakeFromData(array.NewData(of, n, []*memory.Buffer{nil}, []arrow.ArrayData{child}, 0, 0))
}

// Close ends the file.
func (w *Writer) Close() error { return errors.Join(w.batches.Close(), w.file.Close()) }
