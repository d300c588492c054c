package routes

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"spmoe/datasets/arrowipc"
	"spmoe/launcher/system"
)

// Reader reads a file step by step.
type Reader struct {
	Header Header

	path    string
	file    *os.File
	batches *arrowipc.NumberReader
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
	if r.file, _, err = system.OpenRegular(r.path); err != nil {
		return err
	}
	if r.batches, err = arrowipc.NewNumberReader(bufio.NewReader(r.file)); err != nil {
		err = noRoutes(err)
	} else {
		r.Header, err = headerOf(r.batches)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("routes %s: %w", r.path, err), r.file.Close())
	}
	r.step = Step{}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next returns the next step, or [io.EOF]. Its slices are valid until the next call.
func (r *Reader) Next() (Step, error) {
	columns, err := r.batches.Next(len(r.Header.Layers) * r.Header.Tokens())
	if err == io.EOF {
		return Step{}, io.EOF
	} else if err != nil {
		return Step{}, fmt.Errorf("routes %s, after step %d: %w", r.path, r.step.Step, err)
	}
	next, err := r.Header.parse(columns, r.step)
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

// parse returns the step in the columns of a record batch, in the memory of last. Steps follow each
// other.
func (h Header) parse(columns [][]byte, last Step) (s Step, err error) {
	number := func(column, row int) int { return int(int32(binary.LittleEndian.Uint32(columns[column][4*row:]))) }
	s.Step = number(columnStep, 0)
	for i := range len(h.Layers) * h.Tokens() {
		step, layer, want := number(columnStep, i), number(columnLayer, i), h.Layers[i/h.Tokens()]
		if step != s.Step || layer != want {
			return s, fmt.Errorf("row %d is of step %d and layer %d: expected %d and %d", i, step, layer, s.Step, want)
		}
	}
	if s.Step < 1 || last.Step > 0 && s.Step != last.Step+1 {
		return s, fmt.Errorf("step %d follows step %d", s.Step, last.Step)
	}
	s.Experts, s.Weights = last.Experts[:0], last.Weights[:0]
	for i := range h.choices() {
		s.Experts = append(s.Experts, int32(binary.LittleEndian.Uint16(columns[columnExperts][2*i:])))
		s.Weights = append(s.Weights, math.Float32frombits(binary.LittleEndian.Uint32(columns[columnWeights][4*i:])))
	}
	return s, nil
}
