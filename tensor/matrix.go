package tensor

import (
	"fmt"
	"unsafe"
)

// Matrix is a strided two-dimensional view of a tensor. Matrix products and row kernels work on it.
// One of the strides is 1.
type Matrix struct {
	Rows, Cols           int
	data                 unsafe.Pointer
	rowStride, colStride int // in elements
	dtype                DType
}

// MatrixFromBytes is FromBytes(b, dtype, rows, cols).Mat(), without an object on the heap.
func MatrixFromBytes(b []byte, dtype DType, rows, cols int) Matrix {
	if n := rows * cols * dtype.Size(); rows < 0 || cols < 0 || len(b) < n {
		panic(fmt.Sprintf("tensor: %d bytes for a matrix of %d", len(b), n))
	}
	return Matrix{Rows: rows, Cols: cols, data: unsafe.Pointer(unsafe.SliceData(b)), rowStride: cols, colStride: 1, dtype: dtype}
}

// MatrixAt returns a matrix with contiguous columns at an address. rowStride is the distance of two
// rows in elements. The memory is as in At.
func MatrixAt(data unsafe.Pointer, dtype DType, rows, cols, rowStride int) Matrix {
	return Matrix{Rows: rows, Cols: cols, data: data, rowStride: rowStride, colStride: 1, dtype: dtype}
}

// Mat views the tensor as a matrix. The last dimension becomes the columns, and all others the
// rows.
func (t Tensor) Mat() Matrix {
	cols := 1
	if t.ndim > 0 {
		cols = t.dims[t.ndim-1]
	}
	rows := 1
	for _, d := range t.dims[:max(t.ndim-1, 0)] {
		rows *= d
	}
	return Matrix{Rows: rows, Cols: cols, data: t.data, rowStride: cols, colStride: 1, dtype: t.dtype}
}

// Broadcast views the elements of the tensor as each of some rows. It is for operands that are only
// read.
func (t Tensor) Broadcast(rows int) Matrix {
	return Matrix{Rows: rows, Cols: t.Len(), data: t.data, colStride: 1, dtype: t.dtype}
}

// DType returns the element type.
func (m Matrix) DType() DType { return m.dtype }

// Memory returns the address of the first element, and the row and column strides in elements. It
// is for kernels outside this package.
func (m Matrix) Memory() (data unsafe.Pointer, rowStride, colStride int) {
	return m.data, m.rowStride, m.colStride
}

// T returns the transpose, which shares memory.
func (m Matrix) T() Matrix {
	m.Rows, m.Cols = m.Cols, m.Rows
	m.rowStride, m.colStride = m.colStride, m.rowStride
	return m
}

// RowSlice returns rows [lo, hi), which share memory.
func (m Matrix) RowSlice(lo, hi int) Matrix {
	if lo < 0 || hi < lo || hi > m.Rows {
		panic(fmt.Sprintf("tensor: rows [%d, %d) of a matrix of %d rows", lo, hi, m.Rows))
	}
	if hi > lo {
		m.data = unsafe.Add(m.data, lo*m.rowStride*m.dtype.Size())
	}
	m.Rows = hi - lo
	return m
}

// ColSlice returns columns [lo, hi), which share memory.
func (m Matrix) ColSlice(lo, hi int) Matrix { return m.T().RowSlice(lo, hi).T() }

// bf16Row returns the bits of row i of a BF16 matrix whose columns are contiguous.
func (m Matrix) bf16Row(i int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(m.data, i*m.rowStride*2)), m.Cols)
}

// f32Row returns row i of an FP32 matrix whose columns are contiguous.
func (m Matrix) f32Row(i int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(m.data, i*m.rowStride*4)), m.Cols)
}

// bf16Rows returns the memory from the first to the last element of a BF16 matrix whose columns are
// contiguous. Row i begins at i·rowStride.
func (m Matrix) bf16Rows() []uint16 { return unsafe.Slice((*uint16)(m.data), m.span()) }

// f32Rows is bf16Rows for an FP32 matrix.
func (m Matrix) f32Rows() []float32 { return unsafe.Slice((*float32)(m.data), m.span()) }

func (m Matrix) span() int {
	if m.Rows == 0 {
		return 0
	}
	return (m.Rows-1)*m.rowStride + m.Cols
}

// checkRows panics unless row kernels can work on the matrix.
func (m Matrix) checkRows() {
	if m.colStride != 1 && m.Cols > 1 {
		panic("tensor: a row kernel was given a transposed matrix")
	}
	if !m.dtype.float() {
		panic(fmt.Sprintf("tensor: a row kernel was given a matrix of %v, want fp32 or bf16", m.dtype))
	}
}

// checkFP32Rows panics unless f32Row can be used to change the matrix in place.
func (m Matrix) checkFP32Rows() {
	m.checkRows()
	if m.dtype != FP32 {
		panic(fmt.Sprintf("tensor: a matrix of %v is to be changed in place, want fp32", m.dtype))
	}
}

// flat views a matrix without gaps between its rows as a single row.
func (m Matrix) flat() Matrix {
	m.Rows, m.Cols = min(m.Rows, 1), m.Rows*m.Cols
	m.rowStride = m.Cols
	return m
}
