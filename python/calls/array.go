// Package calls is what package python exports to C, without C: each function takes descriptions of
// arrays in memory of the caller, and returns an error instead of a panic.
//
// The caller (spmoe.py) has checked that the arrays have the shapes, strides and types that a
// function documents, and that their memory exists. What mx, moe and tensor check, this package
// leaves to them.
package calls

import (
	"bytes"
	"unsafe"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// DType is the type of an array's elements. The numbers are those of spmoe.py.
type DType int32

// The types. FP16 means FP32 numbers that FP16 holds exactly: only the exponents of tensor cores
// differ from those of FP32.
const (
	FP32 DType = iota
	BF16
	FP16
	E4M3
	E5M2
)

// element returns the format of 8-bit elements; nil: they have more.
func (d DType) element() *format.Element {
	switch d {
	case E4M3:
		return format.E4M3
	case E5M2:
		return format.E5M2
	}
	return nil
}

// format returns the format of 8-bit elements with one scale, which is 1. The zero Format stands
// for more bits.
func (d DType) format() (f mx.Format) {
	if e := d.element(); e != nil {
		f = mx.FP8Tensor
		f.Element = e
	}
	return f
}

// least returns the exponent of the smallest normal number.
func (d DType) least() int {
	switch d {
	case FP16:
		return -14
	case E4M3, E5M2:
		return d.element().MinExponent()
	}
	return -126
}

// stored returns the type in memory.
func (d DType) stored() tensor.DType {
	switch d {
	case BF16:
		return tensor.BF16
	case E4M3, E5M2:
		return tensor.UINT8
	}
	return tensor.FP32
}

// Array describes a matrix [Rows, Cols], or Groups matrices one after another without gaps. Its
// layout in memory is that of class _Array in spmoe.py.
type Array struct {
	Data       unsafe.Pointer
	Groups     int64 // 0: one matrix
	Rows, Cols int64
	// distance in elements of two rows or, if columns are contiguous, of two columns
	Stride     int64
	DType      DType
	Transposed int32 // 1: columns are contiguous
}

// memory returns the shape of one matrix as it lies in memory.
func (a *Array) memory() (rows, cols int) {
	if a.Transposed != 0 {
		return int(a.Cols), int(a.Rows)
	}
	return int(a.Rows), int(a.Cols)
}

// matrix views one matrix, or all rows of several in memory.
func (a *Array) matrix() tensor.Matrix {
	rows, cols := a.memory()
	m := tensor.MatrixAt(a.Data, a.DType.stored(), rows*int(max(a.Groups, 1)), cols, int(a.Stride))
	if a.Transposed != 0 && a.Groups == 0 {
		return m.T()
	}
	return m
}

// tensor views an array without gaps, as it lies in memory.
func (a *Array) tensor() tensor.Tensor {
	rows, cols := a.memory()
	if a.Groups > 0 {
		return tensor.At(a.Data, a.DType.stored(), int(a.Groups), rows, cols)
	}
	return tensor.At(a.Data, a.DType.stored(), rows, cols)
}

// dense returns tensor, or a copy in scratch memory of a matrix with gaps between its rows.
func (a *Array) dense(ex *tensor.Exec) tensor.Tensor {
	if a.Stride == a.Cols || a.Rows == 1 {
		return a.tensor()
	}
	t := ex.New(a.DType.stored(), int(a.Rows), int(a.Cols))
	tensor.Convert(ex, t.Mat(), a.matrix())
	return t
}

// operand views an array as products take it: 8-bit elements are decoded into scratch memory.
func (a *Array) operand(ex *tensor.Exec) (tensor.Matrix, tensor.Tensor) {
	if a.DType.element() == nil {
		if a.Groups == 0 {
			return a.matrix(), tensor.Tensor{}
		}
		return tensor.Matrix{}, a.tensor()
	}
	rows, cols := a.memory()
	rows *= int(max(a.Groups, 1))
	values := ex.New(tensor.BF16, rows, cols)
	decode(ex, values.Mat(), tensor.MatrixAt(a.Data, tensor.UINT8, rows, cols, int(a.Stride)), a.DType)
	switch {
	case a.Groups > 0:
		return tensor.Matrix{}, values.Reshape(int(a.Groups), rows/int(a.Groups), cols)
	case a.Transposed != 0:
		return values.Mat().T(), tensor.Tensor{}
	}
	return values.Mat(), tensor.Tensor{}
}

// Quantized describes a quantized matrix [Rows, Cols] as it lies in memory. Its layout is that of
// class _Quantized in spmoe.py.
type Quantized struct {
	Codes, Scales, Amax, Ends unsafe.Pointer
	Rows, Cols                int64
	Groups                    int64 // of rows, which end at Ends; 0: Ends is nil
	AlongCols                 int32 // 1: blocks run along columns
	Transposed                int32 // 1: the operand of a product is the transpose
	Format                    [64]byte
}

// format parses the name of the format.
func (q *Quantized) format() (mx.Format, error) {
	name, _, _ := bytes.Cut(q.Format[:], []byte{0})
	return ParseFormat(string(name))
}

// layout returns the matrix without memory.
func (q *Quantized) layout() (mx.Tensor, error) {
	f, err := q.format()
	if err != nil {
		return mx.Tensor{}, err
	}
	along := mx.AlongRows
	if q.AlongCols != 0 {
		along = mx.AlongCols
	}
	dry := layouts.Get().(*tensor.Exec)
	defer layouts.Put(dry)
	defer dry.Release(dry.Mark())
	if q.Groups == 0 {
		return mx.New(dry, f, along, int(q.Rows), int(q.Cols)), nil
	}
	return mx.NewGrouped(dry, f, along, int(q.Cols), ends(q.Ends, q.Groups)), nil
}

// tensor views the matrix.
func (q *Quantized) tensor() (mx.Tensor, error) {
	t, err := q.layout()
	if err != nil {
		return t, err
	}
	t.Codes = tensor.At(q.Codes, t.Codes.DType(), t.Codes.Dims()...)
	t.Scales = tensor.At(q.Scales, t.Scales.DType(), t.Scales.Dims()...)
	if t.Amax.Valid() {
		t.Amax = tensor.At(q.Amax, tensor.FP32, t.Amax.Len())
	}
	return t, nil
}

// Layout stores the extents of the codes and scales of q, the bytes of a scale, and the number of
// largest magnitudes, which is 0 for formats without a scale per group.
func Layout(q *Quantized, to *[6]int64) error {
	return guarded(func() error {
		t, err := q.layout()
		if err != nil {
			return err
		}
		for i, part := range []tensor.Tensor{t.Codes, t.Scales} {
			to[2*i], to[2*i+1] = int64(part.Dim(0)), int64(part.Dim(1))
		}
		to[4], to[5] = int64(t.Scales.DType().Size()), 0
		if t.Amax.Valid() {
			to[5] = int64(t.Amax.Len())
		}
		return nil
	})
}

// ends returns the ends of groups in memory of the caller; nil: there are none.
func ends(data unsafe.Pointer, groups int64) []int32 {
	return unsafe.Slice((*int32)(data), groups)
}

// rowOf returns row r of a matrix whose columns are contiguous.
func rowOf[T any](m tensor.Matrix, r int) []T {
	data, stride, _ := m.Memory()
	return unsafe.Slice((*T)(unsafe.Add(data, r*stride*m.DType().Size())), m.Cols)
}
