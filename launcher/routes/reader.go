package routes

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// Reader reads a file step by step.
type Reader struct {
	Header Header

	path    string
	file    *os.File
	batches *ipc.Reader
	step    Step // the last one read
}

// Open opens a file of routes.
func Open(path string) (*Reader, error) {
	r := &Reader{path: path}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reader) open() (err error) {
	if r.file, err = os.Open(r.path); err != nil {
		return err
	}
	if r.Header, err = readHeader(r.file); err == nil {
		_, err = r.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		most := &limited{memory.DefaultAllocator, max(mostHeader, 8*r.Header.choices())}
		r.batches, err = ipc.NewReader(r.file, ipc.WithAllocator(most))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("routes %s: %w", r.path, err), r.file.Close())
	}
	r.step = Step{}
	return nil
}

// limited is an allocator that panics if a damaged file asks for too much at once. [ipc.Reader]
// makes an error of it.
type limited struct {
	memory.Allocator
	most int
}

// Allocate implements [memory.Allocator].
func (l *limited) Allocate(size int) []byte {
	l.check(size)
	return l.Allocator.Allocate(size)
}

// Reallocate implements [memory.Allocator].
func (l *limited) Reallocate(size int, b []byte) []byte {
	l.check(size)
	return l.Allocator.Reallocate(size, b)
}

func (l *limited) check(size int) {
	if size < 0 || size > l.most {
		panic(fmt.Sprintf("it asks for %d bytes at once: the file is damaged", size))
	}
}

// Close closes the file.
func (r *Reader) Close() error {
	r.batches.Release()
	return r.file.Close()
}

// Next returns the next step, or [io.EOF]. Its slices are valid until the next call.
func (r *Reader) Next() (Step, error) {
	if !r.batches.Next() {
		if err := r.batches.Err(); err != nil && !errors.Is(err, io.EOF) {
			return Step{}, fmt.Errorf("routes %s, after step %d: %w", r.path, r.step.Step, err)
		}
		return Step{}, io.EOF
	}
	next, err := r.Header.parse(r.batches.Record(), r.step)
	if err == nil {
		err = next.check(r.Header)
	}
	if err != nil {
		return Step{}, fmt.Errorf("routes %s: %w", r.path, err)
	}
	r.step = next
	return next, nil
}

// At returns a step. Steps in order are found fastest.
func (r *Reader) At(step int) (Step, error) {
	if r.step.Step > step {
		if err := r.Close(); err != nil {
			return Step{}, err
		}
		if err := r.open(); err != nil {
			return Step{}, err
		}
	}
	for r.step.Step < step {
		last := r.step.Step
		if _, err := r.Next(); err == io.EOF {
			return Step{}, fmt.Errorf("routes %s end after step %d: they do not have step %d", r.path, last, step)
		} else if err != nil {
			return Step{}, err
		}
	}
	if r.step.Step != step {
		return Step{}, fmt.Errorf("routes %s begin at step %d: they do not have step %d", r.path, r.step.Step, step)
	}
	return r.step, nil
}

// parse returns the step in a record batch, in the memory of last. Steps follow each other.
func (h Header) parse(batch arrow.Record, last Step) (s Step, err error) {
	defer func() { // arrays trust the lengths in a file
		if p := recover(); p != nil {
			err = fmt.Errorf("after step %d it is damaged: %v", last.Step, p)
		}
	}()
	tokens, n := h.Tokens(), len(h.Layers)*h.Tokens()
	if batch.NumRows() != int64(n) {
		return s, fmt.Errorf("a step has %d rows: expected %d", batch.NumRows(), n)
	}
	for i, c := range batch.Columns() {
		if c.NullN() > 0 {
			return s, fmt.Errorf("column %s has nulls", batch.ColumnName(i))
		}
	}
	steps, layers := batch.Column(0).(*array.Int32).Int32Values(), batch.Column(1).(*array.Int32).Int32Values()
	s.Step = int(steps[0])
	for i := range n {
		if steps[i] != steps[0] || int(layers[i]) != h.Layers[i/tokens] {
			return s, fmt.Errorf("row %d is of step %d and layer %d: expected %d and %d", i, steps[i], layers[i], s.Step, h.Layers[i/tokens])
		}
	}
	if s.Step < 1 || last.Step > 0 && s.Step != last.Step+1 {
		return s, fmt.Errorf("step %d follows step %d", s.Step, last.Step)
	}
	experts := batch.Column(2).(*array.FixedSizeList).ListValues().(*array.Uint16).Uint16Values()
	weights := batch.Column(3).(*array.FixedSizeList).ListValues().(*array.Float32).Float32Values()
	if len(experts) != h.choices() || len(weights) != h.choices() {
		return s, fmt.Errorf("step %d has %d experts and %d weights: expected %d", s.Step, len(experts), len(weights), h.choices())
	}
	s.Experts, s.Weights = last.Experts[:0], append(last.Weights[:0], weights...)
	for _, e := range experts {
		s.Experts = append(s.Experts, int32(e))
	}
	return s, nil
}
