package gemm

// Small operations on views.

import "unsafe"

// View is a 2-D strided matrix in memory. Strides are in elements. At least one stride is 1, or the
// extent is 1.
type View struct {
	Ptr                  unsafe.Pointer
	Rows, Cols           int
	RowStride, ColStride int
}

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

// columnsFrom returns the part from column j on. An empty view stays empty.
func (v View) columnsFrom(elem, j int) View {
	if v.Ptr == nil {
		return v
	}
	return v.slice(elem, 0, j, v.Rows, v.Cols-j)
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
