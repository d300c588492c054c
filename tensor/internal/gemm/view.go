package gemm

// Small operations on views.

import "unsafe"

// View is a 2-D strided matrix in memory. Strides are in elements. At least one stride is 1, or the
// extent is 1.
type View struct {
	Ptr                  unsafe.Pointer
	Rows, Cols           int
	RowStride, ColStride int

	// Whole is the number of rows of the whole product, if a is a part of its left operand; 0: a is
	// all of it. The part is summed in the order of the whole product. Slices lose it.
	Whole int
}

// rowsOfProduct returns the number of rows that determines the order of summation.
func (v View) rowsOfProduct() int { return max(v.Rows, v.Whole) }

func strided(p unsafe.Pointer, rows, cols, rowStride, colStride int) View {
	return View{Ptr: p, Rows: rows, Cols: cols, RowStride: rowStride, ColStride: colStride}
}

// rowMajor reports whether the elements of a row are contiguous.
func (v View) rowMajor() bool { return v.ColStride == 1 || v.Cols <= 1 }

func (v View) transposed() View {
	v.Rows, v.Cols = v.Cols, v.Rows
	v.RowStride, v.ColStride = v.ColStride, v.RowStride
	return v
}

// slice returns the part with rows rows and cols columns at (i, j). An element has elem bytes.
func (v View) slice(elem, i, j, rows, cols int) View {
	return strided(unsafe.Add(v.Ptr, elem*(i*v.RowStride+j*v.ColStride)), rows, cols, v.RowStride, v.ColStride)
}

func at[T uint8 | uint16 | float32](v View, i, j int) *T {
	var t T
	return (*T)(unsafe.Add(v.Ptr, (i*v.RowStride+j*v.ColStride)*int(unsafe.Sizeof(t))))
}

// row returns row i of a row-major view.
func row[T uint16 | float32](v View, i int) []T { return unsafe.Slice(at[T](v, i, 0), v.Cols) }

func zeroRows[T uint16 | float32](v View) {
	for i := range v.Rows {
		clear(row[T](v, i))
	}
}

func copyRows(dst, src View) {
	for i := range dst.Rows {
		copy(row[float32](dst, i), row[float32](src, i))
	}
}
