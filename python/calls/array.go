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

// types says how elements lie in memory, the format of 8-bit ones, and the exponent of the smallest
// normal number of the others.
var types = [...]struct {
	stored  tensor.DType
	element *format.Element
	least   int
}{
	FP32: {tensor.FP32, nil, -126}, BF16: {tensor.BF16, nil, -126}, FP16: {tensor.FP32, nil, -14},
	E4M3: {tensor.UINT8, format.E4M3, format.E4M3.MinExponent()}, E5M2: {tensor.UINT8, format.E5M2, format.E5M2.MinExponent()},
}

// element returns the format of 8-bit elements; nil: they have more.
func (d DType) element() *format.Element { return types[d].element }

// Array describes a matrix [Rows, Cols] in memory, or Groups matrices one after another without
// gaps. Its layout is that of class _Array in spmoe.py.
type Array struct {
	Data       unsafe.Pointer
	Groups     int64 // 0: one matrix
	Rows, Cols int64
	Stride     int64 // distance in elements of two rows
	DType      DType
	Transposed int32 // 1: the operand of a product is the transpose
}

// matrix views one matrix, or all rows of several in memory.
func (a *Array) matrix() tensor.Matrix {
	m := tensor.MatrixAt(a.Data, types[a.DType].stored, int(a.Rows*max(a.Groups, 1)), int(a.Cols), int(a.Stride))
	if a.Transposed != 0 && a.Groups == 0 {
		return m.T()
	}
	return m
}

// tensor views an array without gaps, as it lies in memory.
func (a *Array) tensor() tensor.Tensor {
	if a.Groups > 0 {
		return tensor.At(a.Data, types[a.DType].stored, int(a.Groups), int(a.Rows), int(a.Cols))
	}
	return tensor.At(a.Data, types[a.DType].stored, int(a.Rows), int(a.Cols))
}

// dense returns tensor, or a copy in scratch memory of a matrix with gaps between its rows.
func (a *Array) dense(ex *tensor.Exec) tensor.Tensor {
	if a.Stride == a.Cols || a.Rows == 1 {
		return a.tensor()
	}
	t := ex.New(types[a.DType].stored, int(a.Rows), int(a.Cols))
	tensor.Convert(ex, t.Mat(), a.matrix())
	return t
}

// operand views an array as products take it: 8-bit elements are decoded into scratch memory.
func (a *Array) operand(ex *tensor.Exec) (one tensor.Matrix, groups tensor.Tensor) {
	if a.DType.element() == nil && a.Groups > 0 {
		return one, a.tensor()
	} else if a.DType.element() == nil {
		return a.matrix(), groups
	}
	codes := *a
	codes.Transposed = 0
	values := ex.New(tensor.BF16, int(a.Rows*max(a.Groups, 1)), int(a.Cols))
	c := castArgs{values.Mat(), codes.matrix(), a.DType.element()}
	tensor.Parallel(ex, c.to.Rows, c.ops(), c, decodeRows)
	switch {
	case a.Groups > 0:
		return one, values.Reshape(int(a.Groups), int(a.Rows), int(a.Cols))
	case a.Transposed != 0:
		return values.Mat().T(), groups
	}
	return values.Mat(), groups
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

// layout returns the matrix without memory.
func (q *Quantized) layout() (mx.Tensor, error) {
	name, _, _ := bytes.Cut(q.Format[:], []byte{0})
	f, err := parseFormat(string(name))
	if err != nil {
		return mx.Tensor{}, err
	}
	along := mx.AlongRows
	if q.AlongCols != 0 {
		along = mx.AlongCols
	}
	if q.Groups > 0 {
		return mx.NewGrouped(tensor.NewDryExec(), f, along, int(q.Cols), ends(q.Ends, q.Groups)), nil
	}
	return mx.New(tensor.NewDryExec(), f, along, int(q.Rows), int(q.Cols)), nil
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
	return Guarded(func() error {
		t, err := q.layout()
		if err != nil {
			return err
		}
		*to = [6]int64{int64(t.Codes.Dim(0)), int64(t.Codes.Dim(1)), int64(t.Scales.Dim(0)), int64(t.Scales.Dim(1)), int64(t.Scales.DType().Size())}
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
